/* A stand-in for libnvidia-ml.so.1, for machines without an NVIDIA driver.

   NVML_SCENE chooses what the machine looks like. The real nvidia-ml-py loads this library, so
   that labkit's own path to the driver is the one that is tested. What moves, moves with the clock
   and with nothing else: two processes that ask at one moment are told the same.

   NVML_CONTROL may name a file of `Control`: a test maps it and injects faults while the library is
   in use (tests/nvml_library.py knows the layout). */

#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, PERMISSION = 4, NOT_LOADED = 9,
       LOST = 15, UNKNOWN = 999 };

typedef struct { int number; } Device;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char busId[32]; } Pci;
typedef struct { unsigned long long total, free, used; } Memory;

static Device whole[8];

/* What a test can reach into. The order is that of tests/nvml_library.py. */
enum { ANYTHING, FIELDS, MEMORY, UTILISATION, POWER, ENERGY, TEMPERATURE, CLOCK, GPM,
       FIELD_POWER, GPM_SM, CALLS };
typedef struct {
  double clock;            /* the time; NaN: the machine's */
  int32_t code[CALLS][8];  /* what a call returns; 0: as the scene has it */
  int64_t calls[CALLS][8]; /* how often it was called */
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
  if (scene("eight")) return 8;
  return 2;
}

static int lost(Device *device) { return scene("lost") && device->number == 1; }

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  if (scene("not loaded")) return NOT_LOADED;
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
  int fault = told(MEMORY, device->number);
  if (fault) return fault;
  memory->total = 80000000000ULL;
  memory->used = memory_used(device);
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

/* What is read again and again. */

typedef struct { unsigned gpu, memory; } Utilisation;
typedef struct { uint32_t field, scope; int64_t time, latency; uint32_t type, code; uint64_t value; } Field;
typedef struct { double time; int number; } GpmSample;
typedef struct { unsigned id, code; double value; const char *names[3]; } GpmMetric;
typedef struct { unsigned version, count; GpmSample *first, *second; GpmMetric metrics[]; } GpmGet;

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
  found->gpu = busy(device->number);
  found->memory = round(45 + 8 * wave(device->number, 2.3));
  return OK;
}
int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
  int fault = answer(device, POWER);
  if (!fault) *milliwatts = 1000 * watts(device->number);
  return fault;
}
int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *milliwatts) {
  *milliwatts = 700000;
  return answer(device, ANYTHING);
}
int nvmlDeviceGetTotalEnergyConsumption(Device *device, uint64_t *millijoules) {
  int fault = answer(device, ENERGY);
  if (!fault) *millijoules = 1000 * joules(device->number);
  return fault;
}
int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *degrees) {
  (void)sensor;
  int fault = answer(device, TEMPERATURE);
  if (!fault) *degrees = 58 + 6 * wave(device->number, 40);
  return fault;
}
int nvmlDeviceGetClockInfo(Device *device, int type, unsigned *megahertz) {
  (void)type;
  int fault = answer(device, CLOCK);
  if (!fault) *megahertz = 1800 - 60 * wave(device->number, 8);
  return fault;
}

typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; } Process;
enum { TOO_SMALL = 7 };

/* Weak: the benchmark's stand-in has its own. */
__attribute__((weak)) int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *found) {
  unsigned room = *count;
  *count = device->number == 1 && scene("shared") ? 2 : 0; /* another pointer ends the program, as there */
  if (*count > room) return TOO_SMALL;
  if (*count) found[0] = (Process){getpid(), 2000000000, 0, 0};
  if (*count) found[1] = (Process){4194304, 31000000000, 0, 0}; /* of another container: not seen here */
  return OK;
}

int nvmlDeviceGetFieldValues(Device *device, int count, Field *fields) {
  int fault = answer(device, FIELDS), number = device->number;
  for (int i = 0; !fault && i < count; i++) {
    Field *field = &fields[i];
    double found = 0;
    field->type = 3; /* unsigned long long */
    field->code = OK;
    switch (field->field) {
      case 186: /* mW */
        field->code = told(FIELD_POWER, number);
        found = 1000 * watts(number);
        field->type = 1; /* unsigned int */
        break;
      default: field->code = UNSUPPORTED;
    }
    field->value = found;
  }
  return fault;
}

int nvmlGpmSampleAlloc(GpmSample **sample) {
  *sample = calloc(1, sizeof(GpmSample));
  return *sample ? OK : UNKNOWN;
}
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
    /* Metric 2: %. */
    metric->code = metric->id == 2 ? told(GPM_SM, get->second->number) : UNSUPPORTED;
    metric->value = 70 + 12 * wave(get->second->number, 2.3);
  }
  return OK;
}

