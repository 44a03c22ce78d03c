/* A stand-in for libnvidia-ml.so.1, for machines without an NVIDIA driver.

   NVML_SCENE chooses what the machine looks like. The real nvidia-ml-py loads this library, so
   that labkit's own path to the driver is the one that is tested. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, PERMISSION = 4, NOT_FOUND = 6, NOT_LOADED = 9,
       LOST = 15, MISMATCH = 18, UNKNOWN = 999 };

typedef struct { int number; int part; } Device; /* part -1: the whole GPU */
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char busId[32]; } Pci;
typedef struct { unsigned long long total, free, used; } Memory;

static Device whole[8], parts[8][2];

static int scene(const char *name) {
  const char *chosen = getenv("NVML_SCENE");
  return chosen && strcmp(chosen, name) == 0;
}

static int gpus(void) {
  if (scene("eight") || scene("mesh")) return 8;
  if (scene("mig")) return 1;
  return 2;
}

static int lost(Device *device) { return scene("lost") && device->number == 1; }

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
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
  whole[index].part = -1;
  if (scene("lost handle") && index == 1) return LOST;
  *device = &whole[index];
  return OK;
}
int nvmlDeviceGetName(Device *device, char *text, unsigned size) {
  if (lost(device)) return LOST;
  if (device->part >= 0) snprintf(text, size, "NVIDIA H100 MIG 3g.40gb");
  else if (scene("two kinds") && device->number == 1) snprintf(text, size, "NVIDIA T4");
  else snprintf(text, size, "NVIDIA H100");
  return OK;
}
int nvmlDeviceGetUUID(Device *device, char *text, unsigned size) {
  if (lost(device)) return LOST;
  if (device->part >= 0) snprintf(text, size, "MIG-aaaa%d-%d", device->number, device->part);
  else snprintf(text, size, "GPU-%d%d%d%d-0", device->number, device->number, device->number,
                device->number);
  return OK;
}
int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
  if (lost(device)) return LOST;
  if (scene("no memory")) return UNSUPPORTED;
  if (scene("memory refused") && device->number == 0) return PERMISSION;
  memory->total = device->part >= 0 ? 40000000000ULL : 80000000000ULL;
  memory->used = 1000000000ULL;
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
  if (scene("two kinds")) return UNSUPPORTED;
  if (scene("odd mig")) return UNKNOWN;
  *now = *later = scene("mig");
  return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
  (void)device;
  *count = 7;
  return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **part) {
  if (index >= 2) return NOT_FOUND;
  parts[device->number][index].number = device->number;
  parts[device->number][index].part = index;
  *part = &parts[device->number][index];
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
