/* What chips can be split into: the templates of each board, from Huawei's driver. */
#include <string.h>

#include "vnpu.h"

struct template {
    const char *name;
    uint32_t parts; /* so many such partitions have the memory of the chip */
    uint32_t aic;
    uint32_t aicpu;
    uint32_t memory;        /* of a chip with the larger memory where there are two kinds */
    uint32_t usable_memory;
    float vpc, venc, vdec, jpegd, jpege, pngd;
};

/* The chips that are split alike. The media engines of a whole chip are not in the driver's tables:
 * they are those of the template that has all of them, or of as many templates as fit. */
struct kind {
    const struct template *templates;
    size_t count;
    uint32_t limit;        /* vNPUs of a chip */
    uint32_t large_memory; /* a chip with less has half the memory of the table; 0: only one kind */
    uint32_t sriov_aicpus; /* AI CPUs more as long as there are vNPUs: data CPUs become AI CPUs */
    float vpc, venc, vdec, jpegd, jpege, pngd;
};

#define COUNTED(array) .templates = (array), .count = sizeof(array) / sizeof(array)[0]

static const struct template templates_310p[] = {
    {"vir01", 8, 1, 1, 6144, 6144, 1, 0, 1, 2, 1, 0},
    {"vir02", 4, 2, 2, 12288, 12288, 3, 1, 3, 4, 2, 0},
    {"vir02_1c", 4, 2, 1, 12288, 12288, 3, 0, 3, 4, 2, 0},
    {"vir04", 2, 4, 4, 24576, 24576, 6, 2, 6, 8, 4, 0},
    {"vir04_3c", 2, 4, 3, 24576, 24576, 6, 1, 6, 8, 4, 0},
    {"vir04_3c_ndvpp", 2, 4, 3, 24576, 24576, 0, 0, 0, 0, 0, 0},
    {"vir04_4c_dvpp", 2, 4, 4, 24576, 24576, 12, 3, 12, 16, 8, 0},
};
static const struct kind kind_310p = {
    COUNTED(templates_310p), 8, 32768, 0, 12, 3, 12, 16, 8, 0,
};

static const struct template templates_910[] = {
    {"vir02", 16, 2, 1, 2048, 2048, 1, 0, 1, 1, 0, 1.5f},
    {"vir04", 8, 4, 1, 4096, 4096, 2, 0, 2, 2, 1, 3},
    {"vir08", 4, 8, 3, 8192, 8192, 4, 0, 4, 4, 2, 6},
    {"vir16", 2, 16, 7, 16384, 16384, 8, 0, 8, 8, 4, 12},
};
static const struct kind kind_910 = {
    COUNTED(templates_910), 16, 32768, 2, 16, 0, 16, 16, 8, 24,
};

static const struct template templates_24_cores[] = {
    {"vir12_3c_32g", 2, 12, 3, 32768, 30720, 5, 0, 1, 14, 2, 0},
    {"vir06_1c_16g", 4, 6, 1, 16384, 15360, 2, 0, 0, 7, 1, 0},
};
static const struct kind kind_24_cores = {
    COUNTED(templates_24_cores), 16, 0, 1, 10, 0, 2, 28, 4, 0,
};

static const struct template templates_20_cores_64g[] = {
    {"vir10_3c_32g", 2, 10, 3, 32768, 30720, 4, 0, 1, 12, 2, 0},
    {"vir05_1c_16g", 4, 5, 1, 16384, 15360, 2, 0, 0, 6, 1, 0},
};
static const struct kind kind_20_cores_64g = {
    COUNTED(templates_20_cores_64g), 16, 0, 1, 9, 0, 2, 24, 4, 0,
};

static const struct template templates_20_cores[] = {
    {"vir10_3c_16g", 2, 10, 3, 16384, 14336, 4, 0, 1, 12, 2, 0},
    {"vir10_4c_16g_m", 2, 10, 4, 16384, 14336, 9, 0, 2, 24, 4, 0},
    {"vir10_3c_16g_nm", 2, 10, 3, 16384, 14336, 0, 0, 0, 0, 0, 0},
    {"vir05_1c_8g", 4, 5, 1, 8192, 7168, 2, 0, 0, 6, 1, 0},
};
static const struct kind kind_20_cores = {
    COUNTED(templates_20_cores), 16, 0, 1, 9, 0, 2, 24, 4, 0,
};

static bool is_one_of(uint32_t board_id, const uint32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] == board_id) {
            return true;
        }
    }
    return false;
}

static const struct kind *kind_of_910b(uint32_t board_id)
{
    static const uint32_t with_24[] = {0x13, 0x30, 0x31, 0x39, 0x3A, 0x43, 0x50, 0x51};
    static const uint32_t with_64g[] = {0x10, 0x12, 0x32, 0x38, 0x3B, 0x3E, 0x42, 0x53};
    if (is_one_of(board_id, with_24, sizeof with_24 / sizeof with_24[0])) {
        return &kind_24_cores;
    }
    bool has_64g = is_one_of(board_id, with_64g, sizeof with_64g / sizeof with_64g[0]);
    return has_64g ? &kind_20_cores_64g : &kind_20_cores;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static const struct kind *kind_of(const struct board_facts *facts, uint32_t aicore_count)
{
    const char *name = facts->chip_name;
    if (facts->generation != 1) {
        return NULL;
    }
    if (facts->multi_die_policy != NONE) { /* A3 */
        return aicore_count < 24 ? &kind_20_cores_64g : &kind_24_cores;
    }
    if (begins(name, "310P")) {
        return &kind_310p;
    }
    if (begins(name, "910B")) {
        return kind_of_910b(facts->board_id);
    }
    return begins(name, "910") ? &kind_910 : NULL;
}

uint32_t vnpu_limit(const struct board_facts *facts)
{
    const struct kind *kind = kind_of(facts, 0);
    return kind != NULL ? kind->limit : 0;
}

static uint64_t memory_of(const struct board_device *device)
{
    return device->hbm_size != 0 ? device->hbm_size : device->ddr_size;
}

/* A partition gets its part of the memory that the chip has, if that is less than the table says. */
static uint64_t partition_of(uint64_t memory, const struct kind *kind, const struct template *entry,
                         uint32_t from_table)
{
    uint64_t nominal = memory < kind->large_memory ? from_table / 2 : from_table;
    uint64_t part = memory / entry->parts;
    return part < nominal ? part : nominal;
}

bool vnpu_share_of(const struct board_facts *facts, const struct board_device *device,
                   const char *template_name, struct vnpu_share *share)
{
    const struct kind *kind = kind_of(facts, device->aicore_count);
    uint64_t memory = memory_of(device);
    for (size_t i = 0; kind != NULL && i < kind->count; i++) {
        const struct template *entry = &kind->templates[i];
        if (strcmp(entry->name, template_name) == 0) {
            *share = (struct vnpu_share){
                .aic = entry->aic,
                .aicpu = entry->aicpu,
                .memory = partition_of(memory, kind, entry, entry->memory),
                .usable_memory = partition_of(memory, kind, entry, entry->usable_memory),
                .vpc = entry->vpc,
                .venc = entry->venc,
                .vdec = entry->vdec,
                .jpegd = entry->jpegd,
                .jpege = entry->jpege,
                .pngd = entry->pngd,
            };
            return true;
        }
    }
    return false;
}

struct vnpu_share vnpu_total(const struct board_facts *facts, const struct board_device *device)
{
    const struct kind *kind = kind_of(facts, device->aicore_count);
    struct vnpu_share all = {
        .aic = device->aicore_count,
        .aicpu = facts->ai_cpus,
        .memory = memory_of(device),
        .usable_memory = memory_of(device),
    };
    if (kind != NULL) {
        all.aicpu += device->vnpu_count > 0 ? kind->sriov_aicpus : 0;
        all.vpc = kind->vpc;
        all.venc = kind->venc;
        all.vdec = kind->vdec;
        all.jpegd = kind->jpegd;
        all.jpege = kind->jpege;
        all.pngd = kind->pngd;
    }
    return all;
}

struct vnpu_share vnpu_free(const struct board_facts *facts, const struct board_device *device)
{
    struct vnpu_share rest = vnpu_total(facts, device);
    for (uint32_t i = 0; i < device->vnpu_count; i++) {
        struct vnpu_share partition = {0};
        (void)vnpu_share_of(facts, device, device->vnpus[i].template_name, &partition);
        rest.aic -= partition.aic;
        rest.aicpu -= partition.aicpu;
        rest.memory -= partition.memory;
        rest.vpc -= partition.vpc;
        rest.venc -= partition.venc;
        rest.vdec -= partition.vdec;
        rest.jpegd -= partition.jpegd;
        rest.jpege -= partition.jpege;
        rest.pngd -= partition.pngd;
    }
    return rest;
}
