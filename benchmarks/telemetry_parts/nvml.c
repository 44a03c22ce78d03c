/* What the peers ask and labkit does not, beside the stand-in of the tests: they get an answer at
   once, although NVIDIA's library takes 20 ms for each question about PCIe throughput. With that a
   peer that asks 16 of them could not sample ten times a second. */

#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

typedef struct { int number; } Device;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned long long total, used; } ProtectedMemory;
typedef struct { unsigned version; int sensor, celsius; } Temperature;
typedef struct { unsigned pid; uint64_t used; unsigned gpu_instance, compute_instance; } Process;

/* The stand-in's own. */
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *milliwatts);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device);
int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory);
int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *celsius);
int nvmlDeviceGetUUID(Device *device, char *text, unsigned size);

int nvmlSystemGetNVMLVersion(char *text, unsigned size) {
  strncpy(text, "13.580.65.06", size);
  return OK;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return OK; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return OK; }
int nvmlDeviceGetIndex(Device *device, unsigned *index) { *index = device->number; return OK; }
int nvmlDeviceGetMinorNumber(Device *device, unsigned *minor) { *minor = device->number; return OK; }
int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
  unsigned count = 0;
  nvmlDeviceGetCount_v2(&count);
  for (unsigned index = 0; index < count; index++) {
    char text[96];
    if (nvmlDeviceGetHandleByIndex_v2(index, device)) continue;
    if (nvmlDeviceGetUUID(*device, text, sizeof text) == OK && strcmp(uuid, text) == 0) return OK;
  }
  return NOT_FOUND;
}

/* Numbers that do not move. */
#define TELLS(name, type, number) \
  int nvmlDeviceGet##name(Device *device, type *found) { (void)device; *found = number; return OK; }
TELLS(PerformanceState, unsigned, 0)
TELLS(PersistenceMode, unsigned, 1)
TELLS(ComputeMode, unsigned, 0)
TELLS(DisplayActive, unsigned, 0)
TELLS(DisplayMode, unsigned, 0)
TELLS(MaxMigDeviceCount, unsigned, 7)
TELLS(MaxPcieLinkGeneration, unsigned, 5)
TELLS(MaxPcieLinkWidth, unsigned, 16)
TELLS(CurrPcieLinkGeneration, unsigned, 5)
TELLS(CurrPcieLinkWidth, unsigned, 16)
int nvmlDeviceGetFanSpeed(Device *device, unsigned *percent) {
  (void)device; (void)percent;
  return UNSUPPORTED;
}
int nvmlDeviceIsMigDeviceHandle(Device *device, unsigned *is) { (void)device; *is = 0; return OK; }
int nvmlDeviceGetMigMode(Device *device, unsigned *now, unsigned *later) {
  (void)device;
  *now = *later = 0;
  return OK;
}
int nvmlDeviceGetMaxClockInfo(Device *device, int type, unsigned *megahertz) {
  (void)device; (void)type;
  *megahertz = 1980;
  return OK;
}
int nvmlDeviceGetPowerManagementLimit(Device *device, unsigned *milliwatts) {
  return nvmlDeviceGetEnforcedPowerLimit(device, milliwatts);
}
int nvmlDeviceGetEncoderUtilization(Device *device, unsigned *busy_for, unsigned *period) {
  (void)device;
  *busy_for = 0; *period = 167000;
  return OK;
}
int nvmlDeviceGetDecoderUtilization(Device *device, unsigned *busy_for, unsigned *period) {
  return nvmlDeviceGetEncoderUtilization(device, busy_for, period);
}
int nvmlDeviceGetPcieThroughput(Device *device, int direction, unsigned *kilobytes) {
  (void)device; (void)direction;
  *kilobytes = 4000000;
  return OK;
}
int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
  (void)device;
  *major = 9; *minor = 0;
  return OK;
}
int nvmlDeviceGetTotalEccErrors(Device *device, int type, int counter, uint64_t *errors) {
  (void)device; (void)type; (void)counter;
  *errors = 0;
  return OK;
}
int nvmlDeviceGetNvLinkVersion(Device *device, unsigned link, unsigned *version) {
  (void)device; (void)link;
  *version = 4;
  return OK;
}

/* What moves: memory, temperature, and the process that trains. */
int nvmlDeviceGetBAR1MemoryInfo(Device *device, Memory *memory) {
  (void)device;
  memory->total = 128ULL << 30; memory->used = 1 << 22; memory->free = memory->total - memory->used;
  return OK;
}
int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory2 *memory) {
  Memory plain;
  int fault = nvmlDeviceGetMemoryInfo(device, &plain);
  if (fault) return fault;
  memory->total = plain.total; memory->used = plain.used; memory->free = plain.free; memory->reserved = 0;
  return OK;
}
int nvmlDeviceGetConfComputeMemSizeInfo(Device *device, ProtectedMemory *found) {
  (void)device;
  found->total = found->used = 0;
  return OK;
}
int nvmlDeviceGetTemperatureV(Device *device, Temperature *found) {
  unsigned celsius = 0;
  int code = nvmlDeviceGetTemperature(device, found->sensor, &celsius);
  found->celsius = (int)celsius;
  return code;
}
/* Who asks is a sampler that a notebook's kernel has started: the kernel is what trains. */
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *list) {
  Memory memory;
  unsigned room = *count;
  *count = 1;
  if (room < 1) return TOO_SMALL;
  int fault = nvmlDeviceGetMemoryInfo(device, &memory);
  list[0] = (Process){getppid(), 9 * memory.used / 10, 0, 0};
  return fault;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *device, unsigned *count, Process *list) {
  (void)device; (void)list;
  *count = 0;
  return OK;
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device *device, unsigned *count, Process *list) {
  return nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, list);
}

/* Windows only. */
int nvmlDeviceGetDriverModel(Device *device, unsigned *now, unsigned *later) {
  (void)device; (void)now; (void)later;
  return UNSUPPORTED;
}
int nvmlDeviceGetDriverModel_v2(Device *device, unsigned *now, unsigned *later) {
  return nvmlDeviceGetDriverModel(device, now, later);
}
