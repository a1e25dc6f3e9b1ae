/* npu-smi info: the board as one table, read through libdcmi.so as the vendor's tool does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

#define WIDE "+------------------------------------------------------------------------------------------------+"
#define CHIPS "+---------------------------+---------------+----------------------------------------------------+"
#define CHIPS_END "+===========================+===============+====================================================+"

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

static void load_dcmi(void)
{
    void *library = smi_library();
    smi_bind(library, "dcmi_init", &dcmi.init);
    smi_bind(library, "dcmi_get_card_list", &dcmi.card_list);
    smi_bind(library, "dcmi_get_device_num_in_card", &dcmi.chip_count);
    smi_bind(library, "dcmi_get_device_id_in_card", &dcmi.chip_max);
    smi_bind(library, "dcmi_get_device_type", &dcmi.chip_type);
    smi_bind(library, "dcmi_get_device_chip_info_v2", &dcmi.chip_info);
    smi_bind(library, "dcmi_get_device_pcie_info_v2", &dcmi.pcie_info);
    smi_bind(library, "dcmi_get_device_health", &dcmi.health);
    smi_bind(library, "dcmi_get_device_power_info", &dcmi.power);
    smi_bind(library, "dcmi_mcu_get_power_info", &dcmi.card_power);
    smi_bind(library, "dcmi_get_device_temperature", &dcmi.temperature);
    smi_bind(library, "dcmi_get_device_utilization_rate", &dcmi.load);
    smi_bind(library, "dcmi_get_device_hbm_info", &dcmi.hbm);
    smi_bind(library, "dcmi_get_device_memory_info_v3", &dcmi.memory);
    smi_bind(library, "dcmi_get_device_resource_info", &dcmi.processes);
    smi_bind(library, "dcmi_get_driver_version", &dcmi.driver_version);
    smi_bind(library, "dcmi_get_dcmi_version", &dcmi.dcmi_version);
}

static const char *health_word(int card, int chip)
{
    unsigned health;
    int code = dcmi.health(card, chip, &health);
    return smi_health_word(code, health);
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
    smi_number(watts, sizeof watts, code, tenths / 10.0, 1);
    code = dcmi.temperature(card, chip, &celsius);
    smi_number(heat, sizeof heat, code, celsius, 0);
    code = dcmi.load(card, chip, 2, &percent);
    smi_number(busy, sizeof busy, code, percent, 0);
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

static int print_processes(int card, int chip)
{
    struct dcmi_proc_mem_info processes[MAX_PROCESSES];
    char name[32];
    int count = 0;
    if (dcmi.processes(card, chip, processes, &count) != DCMI_OK) {
        return 0;
    }
    for (int i = 0; i < count; i++) {
        smi_process_name(processes[i].proc_id, name, sizeof name);
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

int main(int argc, char **argv)
{
    int list[MAX_CARDS], count = 0;
    if (argc > 2 && strcmp(argv[2], "-t") == 0) {
        return smi_manage_vnpus(argc, argv);
    }
    enum smi_info wanted = smi_info(argc, argv);
    load_dcmi();
    int code = dcmi.init();
    if (code == DCMI_OK) {
        code = dcmi.card_list(&count, list, MAX_CARDS);
    }
    smi_check_init(code);
    if (wanted == SMI_SHORT_LIST) {
        print_list(list, count);
        return EXIT_SUCCESS;
    }
    print_table(list, count);
    while (wanted == SMI_WATCH) {
        smi_pause();
        print_table(list, count);
    }
    return EXIT_SUCCESS;
}
