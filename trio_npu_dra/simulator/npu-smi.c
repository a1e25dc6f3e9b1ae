/* npu-smi info: the board as one table, read through libdcmi.so as the vendor's tool does.
 *
 * The library is looked for beside this file first (usr/local/bin next to usr/local/Ascend), then
 * at the driver's usual places, then as the dynamic loader finds it.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dcmi_abi.h"

#define WIDE "+------------------------------------------------------------------------------------------------+"
#define CHIPS "+---------------------------+---------------+----------------------------------------------------+"
#define CHIPS_END "+===========================+===============+====================================================+"
#define MAX_CARDS 64
#define MAX_PROCESSES 64

static struct {
    int (*init)(void);
    int (*card_list)(int *, int *, int);
    int (*chip_count)(int, int *);
    int (*chip_max)(int, int *, int *, int *);
    int (*chip_type)(int, int, int *);
    int (*chip_info)(int, int, struct dcmi_chip_info_v2 *);
    int (*pcie_info)(int, int, struct dcmi_pcie_info_all *);
    int (*health)(int, int, unsigned *);
    int (*power)(int, int, int *);
    int (*card_power)(int, int *);
    int (*temperature)(int, int, int *);
    int (*load)(int, int, int, unsigned *);
    int (*hbm)(int, int, struct dcmi_hbm_info *);
    int (*memory)(int, int, struct dcmi_get_memory_info_stru *);
    int (*processes)(int, int, struct dcmi_proc_mem_info *, int *);
    int (*driver_version)(char *, unsigned);
    int (*dcmi_version)(char *, unsigned);
} dcmi;

static void *open_library(void)
{
    static const char *const places[] = {
        "/usr/local/Ascend/driver/lib64/libdcmi.so",
        "/usr/local/Ascend/driver/lib64/driver/libdcmi.so",
        "/usr/local/dcmi/libdcmi.so",
        "libdcmi.so",
    };
    char self[PATH_MAX], beside[PATH_MAX + 64];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length > 0) {
        self[length] = '\0';
        *strrchr(self, '/') = '\0';
        snprintf(beside, sizeof beside, "%s/../Ascend/driver/lib64/libdcmi.so", self);
        void *library = dlopen(beside, RTLD_NOW);
        if (library != NULL) {
            return library;
        }
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        void *library = dlopen(places[i], RTLD_NOW);
        if (library != NULL) {
            return library;
        }
    }
    return NULL;
}

static void bind(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        fprintf(stderr, "libdcmi.so has no %s\n", name);
        exit(EXIT_FAILURE);
    }
    memcpy(function, &symbol, sizeof symbol);
}

static void load_dcmi(void)
{
    void *library = open_library();
    if (library == NULL) {
        fprintf(stderr, "dcmi module initialize failed: libdcmi.so not found (%s)\n", dlerror());
        exit(EXIT_FAILURE);
    }
    bind(library, "dcmi_init", &dcmi.init);
    bind(library, "dcmi_get_card_list", &dcmi.card_list);
    bind(library, "dcmi_get_device_num_in_card", &dcmi.chip_count);
    bind(library, "dcmi_get_device_id_in_card", &dcmi.chip_max);
    bind(library, "dcmi_get_device_type", &dcmi.chip_type);
    bind(library, "dcmi_get_device_chip_info_v2", &dcmi.chip_info);
    bind(library, "dcmi_get_device_pcie_info_v2", &dcmi.pcie_info);
    bind(library, "dcmi_get_device_health", &dcmi.health);
    bind(library, "dcmi_get_device_power_info", &dcmi.power);
    bind(library, "dcmi_mcu_get_power_info", &dcmi.card_power);
    bind(library, "dcmi_get_device_temperature", &dcmi.temperature);
    bind(library, "dcmi_get_device_utilization_rate", &dcmi.load);
    bind(library, "dcmi_get_device_hbm_info", &dcmi.hbm);
    bind(library, "dcmi_get_device_memory_info_v3", &dcmi.memory);
    bind(library, "dcmi_get_device_resource_info", &dcmi.processes);
    bind(library, "dcmi_get_driver_version", &dcmi.driver_version);
    bind(library, "dcmi_get_dcmi_version", &dcmi.dcmi_version);
}

static const char *health_word(int card, int chip)
{
    static const char *const words[] = {"OK", "Warning", "Alarm", "Critical"};
    unsigned health;
    if (dcmi.health(card, chip, &health) != DCMI_OK || health > 3) {
        return "UNKNOWN";
    }
    return words[health];
}

static void number_or_na(char *out, size_t size, int code, double value, int decimals)
{
    if (code == DCMI_OK) {
        snprintf(out, size, "%.*f", decimals, value);
    } else {
        snprintf(out, size, "NA");
    }
}

static void print_chip(int card, int chip)
{
    struct dcmi_chip_info_v2 info = {0};
    struct dcmi_pcie_info_all pci = {0};
    struct dcmi_hbm_info hbm = {0};
    struct dcmi_get_memory_info_stru memory = {0};
    char name[64] = "NA", bus[32] = "NA", watts[16], heat[16], busy[16], ddr[32], high[32];
    int tenths = 0, celsius = 0;
    unsigned percent = 0;
    if (dcmi.chip_info(card, chip, &info) == DCMI_OK) {
        snprintf(name, sizeof name, "%s", (char *)info.chip_name);
    }
    if (dcmi.pcie_info(card, chip, &pci) == DCMI_OK) {
        snprintf(bus, sizeof bus, "%04X:%02X:%02X.%X", (unsigned)pci.domain, pci.bdf_busid,
                 pci.bdf_deviceid, pci.bdf_funcid);
    }
    int code = dcmi.power(card, chip, &tenths);
    if (code == DCMI_NOT_SUPPORT) {
        code = dcmi.card_power(card, &tenths);
    }
    number_or_na(watts, sizeof watts, code, tenths / 10.0, 1);
    code = dcmi.temperature(card, chip, &celsius);
    number_or_na(heat, sizeof heat, code, celsius, 0);
    code = dcmi.load(card, chip, 2, &percent);
    number_or_na(busy, sizeof busy, code, percent, 0);
    (void)dcmi.hbm(card, chip, &hbm);
    (void)dcmi.memory(card, chip, &memory);
    snprintf(ddr, sizeof ddr, "%-4llu / %llu", memory.memory_size - memory.memory_available,
             memory.memory_size);
    snprintf(high, sizeof high, "%-4llu / %llu", hbm.memory_usage, hbm.memory_size);
    printf("| %-5d %-19s | %-13s | %-11s %-17s %-4lu / %-13lu |\n", card, name,
           health_word(card, chip), watts, heat, memory.hugepages_total - memory.hugepages_free,
           memory.hugepages_total);
    printf("| %-25d | %-13s | %-11s %-17s %-20s |\n", chip, bus, busy, ddr, high);
    puts(CHIPS_END);
}

static void process_name(int pid, char *out, size_t size)
{
    char path[64];
    snprintf(out, size, "%s", "-");
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        if (fgets(out, (int)size, file) != NULL) {
            out[strcspn(out, "\n")] = '\0';
        }
        fclose(file);
    }
}

static int print_processes(int card, int chip)
{
    struct dcmi_proc_mem_info processes[MAX_PROCESSES];
    char name[32];
    int count = 0;
    if (dcmi.processes(card, chip, processes, &count) != DCMI_OK) {
        return 0;
    }
    for (int i = 0; i < count; i++) {
        process_name(processes[i].proc_id, name, sizeof name);
        printf("| %-7d %-17d | %-13d | %-24s | %-23lu |\n", card, chip, processes[i].proc_id, name,
               processes[i].proc_mem_usage >> 20);
    }
    return count;
}

/* Calls work for every NPU chip of the card; returns the sum of the results. */
static int for_each_chip(int card, int (*work)(int, int))
{
    int chips = 0, mcu, cpu, type, sum = 0;
    if (card < 0 || dcmi.chip_max(card, &chips, &mcu, &cpu) != DCMI_OK) {
        return 0;
    }
    for (int chip = 0; chip < chips; chip++) {
        if (dcmi.chip_type(card, chip, &type) == DCMI_OK && type == UNIT_NPU) {
            sum += work(card, chip);
        }
    }
    return sum;
}

static int show_chip(int card, int chip)
{
    print_chip(card, chip);
    return 1;
}

static void print_table(const int *list, int count)
{
    char driver[64] = "NA", own[64] = "NA";
    (void)dcmi.driver_version(driver, sizeof driver);
    (void)dcmi.dcmi_version(own, sizeof own);
    puts(WIDE);
    printf("| npu-smi %-23s  Version: %-52s |\n", own, driver);
    puts(CHIPS);
    puts("| NPU   Name                | Health        | Power(W)    Temp(C)           "
         "Hugepages-Usage(page)|");
    puts("| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  "
         "HBM-Usage(MB)        |");
    puts(CHIPS_END);
    for (int i = 0; i < count; i++) {
        for_each_chip(list[i], show_chip);
    }
    puts(CHIPS);
    puts("| NPU     Chip              | Process id    | Process name             | "
         "Process memory(MB)      |");
    puts(CHIPS_END);
    for (int i = 0; i < count; i++) {
        if (list[i] >= 0 && for_each_chip(list[i], print_processes) == 0) {
            char line[64];
            snprintf(line, sizeof line, "No running processes found in NPU %d", list[i]);
            printf("| %-94s |\n", line);
        }
        puts(CHIPS_END);
    }
}

static void print_list(const int *list, int count)
{
    printf("\t%-31s: %d\n\n", "Total Count", count);
    for (int i = 0; i < count; i++) {
        int chips = 0;
        if (list[i] >= 0 && dcmi.chip_count(list[i], &chips) == DCMI_OK) {
            printf("\t%-31s: %d\n\t%-31s: %d\n\n", "NPU ID", list[i], "Chip Count", chips);
        }
    }
}

static int usage(void)
{
    fputs("usage: npu-smi info [-l]\n", stderr);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    int list[MAX_CARDS], count = 0;
    bool short_list = argc == 3 && strcmp(argv[2], "-l") == 0;
    if (argc < 2 || strcmp(argv[1], "info") != 0 || (argc != 2 && !short_list)) {
        return usage();
    }
    load_dcmi();
    int code = dcmi.init();
    if (code == DCMI_OK) {
        code = dcmi.card_list(&count, list, MAX_CARDS);
    }
    if (code != DCMI_OK) {
        printf("dcmi module initialize failed. ret is %d\n", code);
        return EXIT_FAILURE;
    }
    if (short_list) {
        print_list(list, count);
    } else {
        print_table(list, count);
    }
    return EXIT_SUCCESS;
}
