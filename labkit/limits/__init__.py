"""What bounds the gain of more devices: Amdahl's serial share, the roofline, the size of a batch.

>>> round(amdahl(0.1, 8), 2)
4.71
"""

from labkit.limits.noise import noise_scale
from labkit.limits.rates import copy_rate, gemm_rate
from labkit.limits.roofline import Roofline, mfu
from labkit.limits.serial_share import amdahl, fit, gustafson
