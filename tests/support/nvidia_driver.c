/* A stand-in for NVIDIA's libnvidia-ml.so.1, for machines without a GPU: the calls that Clearway makes through pynvml,
 * with the signatures, errors and quirks of the NVML reference (docs.nvidia.com/deploy/nvml-api).
 *
 * What it tells is in the text file that CLEARWAY_TEST_GPUS names, read anew at each call. A line each:
 *
 *   gpu UUID MINOR MEMORY MILLIWATTS NVLINKS NAME...   the next GPU on the bus; 0 = it cannot say
 *   instance UUID MEMORY NAME...                       a MIG instance of that GPU: its GPU instance is the first, 1, ...
 *   mig                                                that GPU is in MIG mode, with instances or without
 *   pid PID                                            computes on the GPU or instance above
 *   lost                                               that GPU has fallen off the bus
 *   busy once                                          that GPU fails to answer, at the first question
 *   xid NUMBER                                         the GPU has reported it: each is told once
 *   limited INDEX MILLIWATTS                           the power limit of a GPU, as the call that set it writes it here
 *
 * One thread at a time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       TIMEOUT = 10, GPU_IS_LOST = 15, UNKNOWN = 999 };
enum { GPUS = 16, INSTANCES = 8, PIDS = 16, XIDS = 16, XID_EVENT = 8 };

typedef struct {
    char uuid[80], name[96];
    unsigned long long memory;
    unsigned pids[PIDS], pid_count;
    int gpu;
} Device;

typedef struct {
    Device whole, instances[INSTANCES];
    unsigned instance_count, minor, milliwatts, links, xids[XIDS], xid_count, told;
    int in_mig, lost, busy, was_busy;
} Gpu;

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } Process;
typedef struct { Device *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } Event;
typedef struct { Gpu *gpu; } EventSet;

static Gpu gpus[GPUS];
static unsigned gpu_count;

static void note(char *line) {
    Gpu *gpu = gpu_count ? &gpus[gpu_count - 1] : NULL;
    Device *last = gpu && gpu->instance_count ? &gpu->instances[gpu->instance_count - 1] : gpu ? &gpu->whole : NULL;
    unsigned number, index;
    if (!strncmp(line, "gpu ", 4) && gpu_count < GPUS) {
        gpu = &gpus[gpu_count++];
        Gpu before = *gpu;
        memset(gpu, 0, sizeof *gpu);
        gpu->told = before.told;
        gpu->was_busy = before.was_busy;
        gpu->whole.gpu = gpu_count - 1;
        sscanf(line, "gpu %79s %u %llu %u %u %95[^\n]", gpu->whole.uuid, &gpu->minor, &gpu->whole.memory,
               &gpu->milliwatts, &gpu->links, gpu->whole.name);
    } else if (gpu && !strncmp(line, "instance ", 9) && gpu->instance_count < INSTANCES) {
        last = &gpu->instances[gpu->instance_count++];
        last->gpu = gpu_count - 1;
        gpu->in_mig = 1;
        sscanf(line, "instance %79s %llu %95[^\n]", last->uuid, &last->memory, last->name);
    } else if (gpu && sscanf(line, "pid %u", &number) == 1 && last->pid_count < PIDS)
        last->pids[last->pid_count++] = number;
    else if (gpu && sscanf(line, "xid %u", &number) == 1 && gpu->xid_count < XIDS)
        gpu->xids[gpu->xid_count++] = number;
    else if (sscanf(line, "limited %u %u", &index, &number) == 2 && index < gpu_count)
        gpus[index].milliwatts = number;
    else if (gpu && !strncmp(line, "mig", 3))
        gpu->in_mig = 1;
    else if (gpu && !strncmp(line, "lost", 4))
        gpu->lost = 1;
    else if (gpu && !strncmp(line, "busy", 4))
        gpu->busy = 1;
}

static int look(void) {
    const char *path = getenv("CLEARWAY_TEST_GPUS");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    if (!file)
        return UNKNOWN;
    gpu_count = 0;
    while (fgets(line, sizeof line, file))
        note(line);
    fclose(file);
    return SUCCESS;
}

/* Whether the device answers, once what is known is what the file says. */
static int ask(const Device *device) {
    int answer = look();
    if (answer || !device)
        return answer ? answer : INVALID_ARGUMENT;
    Gpu *gpu = &gpus[device->gpu];
    if (gpu->busy && !gpu->was_busy)
        return gpu->was_busy = 1, UNKNOWN;
    return gpu->lost ? GPU_IS_LOST : SUCCESS;
}

static Gpu *whole(const Device *device) {
    Gpu *gpu = &gpus[device->gpu];
    return device == &gpu->whole ? gpu : NULL;
}

static int give(char *to, unsigned size, const char *text) {
    if (strlen(text) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) { return flags ? INVALID_ARGUMENT : look(); }
int nvmlInit_v2(void) { return look(); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int error) {
    return error == GPU_IS_LOST ? "GPU is lost" : error == NOT_SUPPORTED ? "Not Supported"
         : error == NO_PERMISSION ? "Insufficient Permissions" : error == TIMEOUT ? "Timeout" : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    int answer = look();
    *count = gpu_count;
    return answer;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    int answer = look();
    if (answer || index >= gpu_count)
        return answer ? answer : INVALID_ARGUMENT;
    *device = &gpus[index].whole;
    return gpus[index].lost ? GPU_IS_LOST : SUCCESS;
}

int nvmlDeviceGetUUID(Device *device, char *uuid, unsigned size) {
    int answer = ask(device);
    return answer ? answer : give(uuid, size, device->uuid);
}

int nvmlDeviceGetName(Device *device, char *name, unsigned size) {
    int answer = ask(device);
    return answer ? answer : give(name, size, device->name);
}

int nvmlDeviceGetMinorNumber(Device *device, unsigned *minor) {
    int answer = ask(device);
    if (!answer && !whole(device))
        return INVALID_ARGUMENT;
    return answer ? answer : (*minor = whole(device)->minor, SUCCESS);
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    int answer = ask(device);
    if (answer || !device->memory)
        return answer ? answer : NOT_SUPPORTED;
    memory->total = memory->free = device->memory;
    memory->used = 0;
    return SUCCESS;
}

int nvmlDeviceGetPowerManagementLimit(Device *device, unsigned *milliwatts) {
    int answer = ask(device);
    if (answer || !whole(device) || !whole(device)->milliwatts)
        return answer ? answer : NOT_SUPPORTED;
    *milliwatts = whole(device)->milliwatts;
    return SUCCESS;
}

int nvmlDeviceGetPowerManagementLimitConstraints(Device *device, unsigned *least, unsigned *most) {
    *least = 200000, *most = 700000;
    return ask(device);
}

int nvmlDeviceSetPowerManagementLimit(Device *device, unsigned milliwatts) {
    int answer = ask(device);
    FILE *file = answer ? NULL : fopen(getenv("CLEARWAY_TEST_GPUS"), "a");
    if (!file)
        return answer ? answer : NO_PERMISSION;
    fprintf(file, "limited %d %u\n", device->gpu, milliwatts);
    fclose(file);
    return SUCCESS;
}

int nvmlDeviceGetNvLinkState(Device *device, unsigned link, unsigned *state) {
    int answer = ask(device);
    if (answer || !whole(device) || !whole(device)->links)
        return answer ? answer : NOT_SUPPORTED;
    *state = 1;
    return link < whole(device)->links ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    int answer = ask(device);
    if (answer || !whole(device))
        return answer ? answer : INVALID_ARGUMENT;
    *current = *pending = whole(device)->in_mig;
    return strstr(device->name, "00") ? SUCCESS : NOT_SUPPORTED; /* of A100, H100, H200 and the like */
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
    *count = 7;
    return ask(device);
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **instance) {
    int answer = ask(device);
    if (answer || !whole(device) || index >= whole(device)->instance_count)
        return answer ? answer : NOT_FOUND;
    *instance = &whole(device)->instances[index];
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *id) {
    int answer = ask(device);
    if (answer || whole(device))
        return answer ? answer : INVALID_ARGUMENT;
    *id = 1 + (device - gpus[device->gpu].instances);
    return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(Device *device, unsigned *id) {
    int answer = ask(device);
    *id = 0;
    return answer || !whole(device) ? answer : INVALID_ARGUMENT;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *processes) {
    int answer = ask(device);
    if (answer)
        return answer;
    unsigned room = *count;
    *count = device->pid_count;
    if (device->pid_count > room)
        return INSUFFICIENT_SIZE;
    for (unsigned n = 0; n < device->pid_count; n++)
        processes[n] = (Process){device->pids[n], 1 << 20, 0xFFFFFFFF, 0xFFFFFFFF};
    return SUCCESS;
}

int nvmlEventSetCreate(EventSet **set) {
    *set = calloc(1, sizeof **set);
    return *set ? SUCCESS : UNKNOWN;
}

int nvmlDeviceRegisterEvents(Device *device, unsigned long long kinds, EventSet *set) {
    int answer = ask(device);
    if (answer || !whole(device) || kinds != XID_EVENT)
        return answer ? answer : NOT_SUPPORTED;
    set->gpu = whole(device);
    set->gpu->told = set->gpu->xid_count;
    return SUCCESS;
}

int nvmlEventSetWait_v2(EventSet *set, Event *event, unsigned timeout_ms) {
    (void)timeout_ms;
    int answer = set->gpu ? ask(&set->gpu->whole) : TIMEOUT;
    if (answer)
        return answer;
    if (set->gpu->told >= set->gpu->xid_count)
        return TIMEOUT;
    *event = (Event){&set->gpu->whole, XID_EVENT, set->gpu->xids[set->gpu->told++], 0xFFFFFFFF, 0xFFFFFFFF};
    return SUCCESS;
}
