/* A stand-in for `nvidia-smi --query-gpu=index,utilization.gpu,memory.used,power.draw,temperature.gpu
   --format=csv,noheader,nounits`: started anew for every look, asks the same library. The real
   program does more, so this is the least that polling it can cost. */

#include <dlfcn.h>
#include <stdio.h>

typedef void *Device;
typedef int (*Question)();

static void *library;

static Question ask(const char *name) { return (Question)dlsym(library, name); }

int main(void) {
  unsigned count = 0, degrees, milliwatts, busy[2];
  unsigned long long memory[3];
  Device device;
  library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (!library || ask("nvmlInitWithFlags")(0)) return 9;
  ask("nvmlDeviceGetCount_v2")(&count);
  for (unsigned index = 0; index < count; index++) {
    if (ask("nvmlDeviceGetHandleByIndex_v2")(index, &device)) continue;
    ask("nvmlDeviceGetUtilizationRates")(device, busy);
    ask("nvmlDeviceGetMemoryInfo")(device, memory);
    ask("nvmlDeviceGetPowerUsage")(device, &milliwatts);
    ask("nvmlDeviceGetTemperature")(device, 0, &degrees);
    printf("%u, %u, %llu, %.2f, %u\n", index, busy[0], memory[2] >> 20, milliwatts / 1e3, degrees);
  }
  return 0;
}
