/* What the peers ask beyond labkit's own questions, beside the stand-in of the tests.

   Weak, so that the stand-in's own answer comes first where it has one. The build lets the
   stand-in's nanosleep be answer_at_once: NVIDIA's library takes 20 ms for each question about
   PCIe throughput, with which a peer that asks 16 of them could not sample ten times a second. */

#include <stddef.h>

enum { OK = 0, UNSUPPORTED = 3 };

typedef struct { unsigned version; int sensor, celsius; } Temperature;
typedef struct { unsigned long long total, used; } ProtectedMemory;

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);

#define ANSWER __attribute__((weak)) int

int answer_at_once(const void *wanted, void *left) { (void)wanted; (void)left; return 0; }

ANSWER nvmlDeviceGetNvLinkVersion(void *device, unsigned link, unsigned *version) {
  (void)device; (void)link;
  *version = 4;
  return OK;
}
ANSWER nvmlDeviceGetTemperatureV(void *device, Temperature *found) {
  unsigned celsius = 0;
  int code = nvmlDeviceGetTemperature(device, found->sensor, &celsius);
  found->celsius = (int)celsius;
  return code;
}
ANSWER nvmlDeviceGetConfComputeMemSizeInfo(void *device, ProtectedMemory *found) {
  (void)device;
  found->total = found->used = 0;
  return OK;
}
/* Windows only. */
ANSWER nvmlDeviceGetDriverModel(void *device, unsigned *now, unsigned *later) {
  (void)device; (void)now; (void)later;
  return UNSUPPORTED;
}
ANSWER nvmlDeviceGetDriverModel_v2(void *device, unsigned *now, unsigned *later) {
  return nvmlDeviceGetDriverModel(device, now, later);
}
