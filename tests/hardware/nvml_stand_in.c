/* A stand-in for libnvidia-ml.so.1, for machines without an NVIDIA driver.

   NVML_SCENE chooses what the machine looks like. The real nvidia-ml-py loads this library, so
   that labkit's own path to the driver is the one that is tested. What moves, moves with the clock
   and with nothing else: two processes that ask at one moment are told the same.

   NVML_CONTROL may name a file of `Control`: a test maps it and injects faults and numbers while
   the library is in use (tests/nvml_library.py knows the layout). */

#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, PERMISSION = 4, NOT_FOUND = 6,
       TOO_SMALL = 7, NOT_LOADED = 9, LOST = 15, MISMATCH = 18, UNKNOWN = 999 };

typedef struct { int number; } Device;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char busId[32]; } Pci;
typedef struct { unsigned long long total, free, used; } Memory;

static Device whole[8];

/* What a test can reach into. The order is that of tests/nvml_library.py. */
enum { ANYTHING, FIELDS, MEMORY, UTILISATION, POWER, ENERGY, TEMPERATURE, CLOCK, PROCESSES, GPM,
       SAMPLES, FIELD_ENERGY, FIELD_POWER, FIELD_PCIE, FIELD_NVLINK, GPM_SM, GPM_PCIE, GPM_NVLINK,
       INIT, HANDLE, THROUGHPUT, BY_UUID, CALLS };
enum { V_UTILISATION, V_TRAFFIC, V_MEMORY, V_POWER, V_ENERGY, V_TEMPERATURE, V_CLOCK, V_SM, V_PCIE,
       V_NVLINK, V_PROCESS_MEMORY, V_PID, V_OTHER_PID, VALUES };
typedef struct {
  double clock;             /* the time; NaN: the machine's */
  double value[VALUES][8];  /* NaN: as the scene has it */
  int32_t code[CALLS][8];   /* what a call returns; 0: as the scene has it */
  int64_t calls[CALLS][8];  /* how often it was called */
} Control;

static Control *control(void) {
  static Control *mapped;
  static int looked;
  if (looked) return mapped;
  looked = 1;
  const char *path = getenv("NVML_CONTROL");
  int file = path ? open(path, O_RDWR) : -1;
  if (file < 0) return NULL;
  void *memory = mmap(NULL, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  mapped = memory == MAP_FAILED ? NULL : memory;
  return mapped;
}

static int told(int call, int number) {
  Control *shared = control();
  if (!shared) return OK;
  shared->calls[call][number]++;
  return shared->code[ANYTHING][number] ? shared->code[ANYTHING][number]
                                        : shared->code[call][number];
}

static double value(int what, int number, double otherwise) {
  Control *shared = control();
  return shared && !isnan(shared->value[what][number]) ? shared->value[what][number] : otherwise;
}

static double now(void) {
  Control *shared = control();
  if (shared && !isnan(shared->clock)) return shared->clock;
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}

/* Training: a step every 2.3 s or so, each GPU a little after its neighbour. */
static double wave(int number, double period) {
  return sin(6.283185307179586 * now() / period + 0.7 * number);
}

static int scene(const char *name) {
  static const char *chosen; /* one process sees one scene */
  if (!chosen) chosen = getenv("NVML_SCENE");
  return chosen && strcmp(chosen, name) == 0;
}

static int gpus(void) {
  if (scene("eight") || scene("mesh")) return 8;
  return 2;
}

static int lost(Device *device) { return scene("lost") && device->number == 1; }

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  int fault = told(INIT, 0);
  if (fault) return fault;
  if (scene("not loaded")) return NOT_LOADED;
  if (scene("mismatch")) return MISMATCH;
  if (scene("permission")) return PERMISSION;
  if (scene("odd")) return UNKNOWN;
  return OK;
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "an odd fault"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  snprintf(text, size, "580.65.06");
  return OK;
}
int nvmlDeviceGetCount_v2(unsigned *count) { *count = gpus(); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
  if (index >= (unsigned)gpus()) return INVALID;
  whole[index].number = index;
  int fault = told(HANDLE, index);
  if (fault) return fault;
  if (scene("lost handle") && index == 1) return LOST;
  *device = &whole[index];
  return OK;
}
int nvmlDeviceGetName(Device *device, char *text, unsigned size) {
  if (lost(device)) return LOST;
  snprintf(text, size, "NVIDIA H100");
  return OK;
}
int nvmlDeviceGetUUID(Device *device, char *text, unsigned size) {
  if (lost(device)) return LOST;
  int number = device->number;
  snprintf(text, size, "GPU-%d%d%d%d-0", number, number, number, number);
  return OK;
}
static double memory_used(Device *device) {
  if (!scene("eight")) return 1e9;
  return 4e10 + 1e9 * device->number + 5e9 * wave(device->number, 31);
}
int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
  if (lost(device)) return LOST;
  if (scene("memory refused") && device->number == 0) return PERMISSION;
  int fault = told(MEMORY, device->number);
  if (fault) return fault;
  memory->total = 80000000000ULL;
  memory->used = value(V_MEMORY, device->number, memory_used(device));
  memory->free = memory->total - memory->used;
  return OK;
}
int nvmlDeviceGetPciInfo_v3(Device *device, Pci *pci) {
  if (lost(device)) return LOST;
  memset(pci, 0, sizeof *pci);
  /* CUDA's order by slot is here the reverse of NVML's, so that a mix-up shows. */
  pci->bus = 0x80 - device->number;
  return OK;
}
int nvmlDeviceGetMigMode(Device *device, unsigned *now, unsigned *later) {
  if (lost(device)) return LOST;
  *now = *later = 0;
  return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
  (void)device;
  *count = 7;
  return OK;
}
int nvmlDeviceGetTopologyCommonAncestor(Device *first, Device *second, unsigned *level) {
  if (lost(first) || lost(second)) return LOST;
  *level = first->number / 4 == second->number / 4 ? 10 : 50;
  return OK;
}
int nvmlDeviceGetNvLinkState(Device *device, unsigned link, unsigned *active) {
  if (lost(device)) return LOST;
  if (scene("eight")) {
    if (link >= 18) return INVALID;
    *active = 1;
    return OK;
  }
  if (scene("mesh")) {
    if (link >= 4) return INVALID;
    *active = link != 3; /* one link of each GPU is down */
    return OK;
  }
  return UNSUPPORTED;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device *device, unsigned link, Pci *pci) {
  memset(pci, 0, sizeof *pci);
  if (scene("eight")) { pci->bus = 0xc0; return OK; } /* a switch */
  /* Two links to the neighbour in the pair, one to the GPU two further on. */
  pci->bus = 0x80 - (link < 2 ? device->number ^ 1 : device->number ^ 2);
  return OK;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(Device *device, unsigned link, unsigned *type) {
  (void)device; (void)link;
  *type = 2;
  return OK;
}
int nvmlDeviceGetP2PStatus(Device *first, Device *second, int index, unsigned *status) {
  (void)index;
  if (lost(first) || lost(second)) return LOST;
  *status = first->number / 4 == second->number / 4 || scene("eight") ? 0 : 3;
  return OK;
}

/* What is read again and again. */

typedef struct { unsigned gpu, memory; } Utilisation;
typedef struct { uint32_t field, scope; int64_t time, latency; uint32_t type, code; uint64_t value; } Field;
typedef struct { unsigned pid; uint64_t used; unsigned gpu_instance, compute_instance; } Process;
typedef struct { uint64_t time; uint64_t value; } Sample;
typedef struct { double time; int number; } GpmSample;
typedef struct { unsigned id, code; double value; const char *names[3]; } GpmMetric;
typedef struct { unsigned version, count; GpmSample *first, *second; GpmMetric metrics[]; } GpmGet;
typedef struct { unsigned version, supported; } GpmSupport;

static int answer(Device *device, int call) { return lost(device) ? LOST : told(call, device->number); }

static double watts(int number) { return 520 + 120 * wave(number, 8); }
static double joules(int number) { /* the integral of watts */
  double t = now();
  return 520 * t - 120 * 8 / 6.283185307179586 * cos(6.283185307179586 * t / 8 + 0.7 * number);
}
static double busy(int number) { return round(90 + 10 * wave(number, 2.3)); }

int nvmlDeviceGetUtilizationRates(Device *device, Utilisation *found) {
  int fault = answer(device, UTILISATION);
  if (fault) return fault;
  found->gpu = value(V_UTILISATION, device->number, busy(device->number));
  found->memory = value(V_TRAFFIC, device->number, round(45 + 8 * wave(device->number, 2.3)));
  return OK;
}
int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
  int fault = answer(device, POWER);
  if (!fault) *milliwatts = 1000 * value(V_POWER, device->number, watts(device->number));
  return fault;
}
int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *milliwatts) {
  *milliwatts = 700000;
  return answer(device, ANYTHING);
}
int nvmlDeviceGetPowerManagementLimit(Device *device, unsigned *milliwatts) {
  return nvmlDeviceGetEnforcedPowerLimit(device, milliwatts);
}
int nvmlDeviceGetTotalEnergyConsumption(Device *device, uint64_t *millijoules) {
  int fault = answer(device, ENERGY);
  if (!fault) *millijoules = 1000 * value(V_ENERGY, device->number, joules(device->number));
  return fault;
}
int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *degrees) {
  (void)sensor;
  int fault = answer(device, TEMPERATURE);
  if (!fault) *degrees = value(V_TEMPERATURE, device->number, 58 + 6 * wave(device->number, 40));
  return fault;
}
int nvmlDeviceGetClockInfo(Device *device, int type, unsigned *megahertz) {
  (void)type;
  int fault = answer(device, CLOCK);
  if (!fault) *megahertz = value(V_CLOCK, device->number, 1800 - 60 * wave(device->number, 8));
  return fault;
}
int nvmlDeviceGetMaxClockInfo(Device *device, int type, unsigned *megahertz) {
  (void)type;
  *megahertz = 1980;
  return answer(device, ANYTHING);
}
/* The real one looks on for 20 ms. */
int nvmlDeviceGetPcieThroughput(Device *device, int direction, unsigned *kilobytes) {
  (void)direction;
  struct timespec wait = {0, 20000000};
  nanosleep(&wait, NULL);
  *kilobytes = 4000000;
  return answer(device, THROUGHPUT);
}
#ifndef OLD /* a driver of before 2020 lacks all of the following */

static int processes(Device *device, unsigned *count, Process *list) {
  if (lost(device)) return LOST;
  int fault = told(PROCESSES, device->number);
  if (fault) return fault;
  /* Who asks is a sampler that a notebook's kernel has started: the kernel is what trains. */
  double pids[2] = {value(V_PID, device->number, scene("eight") ? getppid() : 0),
                    value(V_OTHER_PID, device->number, 0)};
  unsigned found = (pids[0] > 0) + (pids[1] > 0), room = *count, at = 0;
  *count = found;
  if (found > room) return TOO_SMALL;
  for (int i = 0; i < 2; i++) {
    if (pids[i] <= 0) continue;
    double used = value(V_PROCESS_MEMORY, device->number, 0.9 * memory_used(device));
    Process process = {pids[i], used < 0 ? UINT64_MAX : (uint64_t)used, 0, 0};
    list[at++] = process;
  }
  return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *list) {
  return processes(device, count, list);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *device, unsigned *count, Process *list) {
  (void)list;
  *count = 0;
  return answer(device, ANYTHING);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device *device, unsigned *count, Process *list) {
  return nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, list);
}

static double traffic(int number, int what) { /* bytes a second, sent or received */
  return what == V_PCIE ? 4e9 + 2e9 * wave(number, 5) : 9e10 + 4e10 * wave(number, 2.3);
}
static double bytes(int number, int what) { /* since the machine was started */
  double steady = what == V_PCIE ? 4e9 : 9e10, swing = what == V_PCIE ? 2e9 : 4e10;
  double period = what == V_PCIE ? 5 : 2.3, t = now(), turn = 6.283185307179586;
  return steady * t - swing * period / turn * cos(turn * t / period + 0.7 * number);
}
int nvmlDeviceGetFieldValues(Device *device, int count, Field *fields) {
  int fault = answer(device, FIELDS), number = device->number;
  for (int i = 0; !fault && i < count; i++) {
    Field *field = &fields[i];
    double found = 0;
    field->type = 3; /* unsigned long long */
    field->code = OK;
    switch (field->field) {
      case 83: /* mJ */
        field->code = told(FIELD_ENERGY, number);
        found = 1000 * value(V_ENERGY, number, joules(number));
        break;
      case 186: /* mW */
        field->code = told(FIELD_POWER, number);
        found = 1000 * value(V_POWER, number, watts(number));
        field->type = 1; /* unsigned int */
        break;
      case 197: case 198: /* bytes */
        field->code = told(FIELD_PCIE, number);
        found = value(V_PCIE, number, bytes(number, V_PCIE));
        break;
      case 138: case 139: /* KiB; scope UINT_MAX: all links together */
        field->code = field->scope == UINT32_MAX ? told(FIELD_NVLINK, number) : INVALID;
        if (!scene("eight")) field->code = UNSUPPORTED;
        found = value(V_NVLINK, number, bytes(number, V_NVLINK)) / 1024;
        break;
      default: field->code = UNSUPPORTED;
    }
    field->value = found;
  }
  return fault;
}

int nvmlGpmQueryDeviceSupport(Device *device, GpmSupport *support) {
  support->supported = scene("eight");
  return lost(device) ? LOST : told(GPM, device->number);
}
int nvmlGpmSampleAlloc(GpmSample **sample) {
  *sample = calloc(1, sizeof(GpmSample));
  return *sample ? OK : UNKNOWN;
}
int nvmlGpmSampleFree(GpmSample *sample) { free(sample); return OK; }
int nvmlGpmSampleGet(Device *device, GpmSample *sample) {
  int fault = answer(device, GPM);
  sample->time = now();
  sample->number = device->number;
  return fault ? fault : scene("eight") ? OK : UNSUPPORTED;
}
int nvmlGpmMetricsGet(GpmGet *get) {
  if (get->second->time <= get->first->time) return INVALID;
  for (unsigned i = 0; i < get->count; i++) {
    GpmMetric *metric = &get->metrics[i];
    int number = get->second->number;
    metric->code = OK;
    switch (metric->id) {
      case 2: /* % */
        metric->code = told(GPM_SM, number);
        metric->value = value(V_SM, number, 70 + 12 * wave(number, 2.3));
        break;
      case 20: case 21: /* MiB/s */
        metric->code = told(GPM_PCIE, number);
        metric->value = value(V_PCIE, number, traffic(number, V_PCIE)) / 1048576;
        break;
      case 60: case 61: /* MiB/s */
        metric->code = told(GPM_NVLINK, number);
        metric->value = value(V_NVLINK, number, traffic(number, V_NVLINK)) / 1048576;
        break;
      default: metric->code = UNSUPPORTED;
    }
  }
  return OK;
}

#endif

/* The driver's own buffer: a number every 167 ms. */
int nvmlDeviceGetSamples(Device *device, int kind, uint64_t seen, unsigned *type, unsigned *count,
                         Sample *samples) {
  int fault = answer(device, SAMPLES);
  if (fault || kind != 1) return fault ? fault : UNSUPPORTED;
  uint64_t step = 166667, here = now() * 1e6, room = *count;
  static int64_t apart; /* µs from the machine's clock to that of the stamps, which is the wall's */
  if (!apart) {
    struct timespec wall, own;
    clock_gettime(CLOCK_REALTIME, &wall);
    clock_gettime(CLOCK_MONOTONIC, &own);
    apart = (wall.tv_sec - own.tv_sec) * 1000000LL + (wall.tv_nsec - own.tv_nsec) / 1000;
  }
  Control *shared = control();
  *type = 1;
  *count = 0;
  uint64_t last = here / step * step;
  uint64_t oldest = last > 119 * step ? last - 119 * step : step;
  for (uint64_t time = oldest; time <= last; time += step) {
    /* The same for everyone who asks, to the millisecond. */
    int64_t moved = shared && !isnan(shared->clock) ? 0 : apart; /* a test's clock is everyone's */
    uint64_t stamp = (uint64_t)((int64_t)time + moved) / 1000 * 1000;
    if (stamp <= seen) continue;
    if (samples) {
      if (*count >= room) break;
      Sample sample = {stamp, value(V_UTILISATION, device->number,
                                    round(50 + 50 * sin(time / 1e6 * 31.4)))};
      samples[*count] = sample;
    }
    ++*count;
  }
  return *count ? OK : NOT_FOUND;
}

/* What other programs ask about. */

int nvmlSystemGetNVMLVersion(char *text, unsigned size) { snprintf(text, size, "13.580.65.06"); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return OK; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return OK; }
int nvmlDeviceGetIndex(Device *device, unsigned *index) { *index = device->number; return lost(device) ? LOST : OK; }
int nvmlDeviceGetMinorNumber(Device *device, unsigned *minor) { *minor = device->number; return lost(device) ? LOST : OK; }
int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
  for (int number = 0; number < gpus(); number++) {
    char text[96];
    snprintf(text, sizeof text, "GPU-%d%d%d%d-0", number, number, number, number);
    if (strcmp(uuid, text) == 0) {
      int fault = told(BY_UUID, number);
      return fault ? fault : nvmlDeviceGetHandleByIndex_v2(number, device);
    }
  }
  return NOT_FOUND;
}
int nvmlDeviceGetFanSpeed(Device *device, unsigned *percent) { (void)percent; return lost(device) ? LOST : UNSUPPORTED; }
int nvmlDeviceGetPerformanceState(Device *device, unsigned *state) { *state = 0; return answer(device, ANYTHING); }
int nvmlDeviceGetPersistenceMode(Device *device, unsigned *on) { *on = 1; return answer(device, ANYTHING); }
int nvmlDeviceGetComputeMode(Device *device, unsigned *mode) { *mode = 0; return answer(device, ANYTHING); }
int nvmlDeviceGetDisplayActive(Device *device, unsigned *on) { *on = 0; return answer(device, ANYTHING); }
int nvmlDeviceGetDisplayMode(Device *device, unsigned *on) { *on = 0; return answer(device, ANYTHING); }
int nvmlDeviceGetEncoderUtilization(Device *device, unsigned *busy_for, unsigned *period) {
  *busy_for = 0; *period = 167000;
  return answer(device, ANYTHING);
}
int nvmlDeviceGetDecoderUtilization(Device *device, unsigned *busy_for, unsigned *period) {
  return nvmlDeviceGetEncoderUtilization(device, busy_for, period);
}
int nvmlDeviceGetMaxPcieLinkGeneration(Device *device, unsigned *generation) {
  *generation = 5;
  return answer(device, ANYTHING);
}
int nvmlDeviceGetCurrPcieLinkGeneration(Device *device, unsigned *generation) {
  return nvmlDeviceGetMaxPcieLinkGeneration(device, generation);
}
int nvmlDeviceGetMaxPcieLinkWidth(Device *device, unsigned *width) { *width = 16; return answer(device, ANYTHING); }
int nvmlDeviceGetCurrPcieLinkWidth(Device *device, unsigned *width) { return nvmlDeviceGetMaxPcieLinkWidth(device, width); }
int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
  *major = 9; *minor = 0;
  return lost(device) ? LOST : OK;
}
int nvmlDeviceGetTotalEccErrors(Device *device, int type, int counter, uint64_t *errors) {
  (void)type; (void)counter;
  *errors = 0;
  return answer(device, ANYTHING);
}
int nvmlDeviceGetBAR1MemoryInfo(Device *device, Memory *memory) {
  memory->total = 128ULL << 30; memory->used = 1 << 22; memory->free = memory->total - memory->used;
  return answer(device, ANYTHING);
}
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory2 *memory) {
  Memory plain;
  int fault = nvmlDeviceGetMemoryInfo(device, &plain);
  if (fault) return fault;
  memory->total = plain.total; memory->used = plain.used; memory->free = plain.free; memory->reserved = 0;
  return OK;
}
int nvmlDeviceIsMigDeviceHandle(Device *device, unsigned *is) { (void)device; *is = 0; return OK; }
