/* npu-smi info of the drivers for Ascend 950: chips go by their dev id (npu-smi reference). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smi.h"

#define WIDE "+-------------------------------------------------------------------------------------------------+"
#define CHIPS "+---------------------------+---------------+-----------------------------------------------------+"
#define CHIP_END "+========+==================+===============+=====================================================+"
#define PROCESS_END "+===========================+===============+=====================================================+"

static struct {
    int (*init)(void);
    int (*list)(int *, int *, int);
    int (*chip_info)(int, struct dcmi_chip_info_v2 *);
    int (*pcie_info)(int, struct dcmi_pcie_info_all *);
    int (*elabel)(int, struct dcmi_elabel_info *);
    int (*health)(int, unsigned *);
    int (*power)(int, int *);
    int (*temperature)(int, int *);
    int (*load)(int, int, unsigned *);
    int (*hbm)(int, struct dcmi_hbm_info *);
    int (*processes)(int, struct dcmi_proc_mem_info *, int *);
    int (*driver_version)(char *, unsigned);
    int (*dcmi_version)(char *, unsigned);
} dcmi;

static void load_dcmi(void)
{
    void *library = smi_library();
    smi_bind(library, "dcmiv2_init", &dcmi.init);
    smi_bind(library, "dcmiv2_get_device_list", &dcmi.list);
    smi_bind(library, "dcmiv2_get_device_chip_info", &dcmi.chip_info);
    smi_bind(library, "dcmiv2_get_device_pcie_info", &dcmi.pcie_info);
    smi_bind(library, "dcmiv2_get_device_elabel_info", &dcmi.elabel);
    smi_bind(library, "dcmiv2_get_device_health", &dcmi.health);
    smi_bind(library, "dcmiv2_get_device_power_info", &dcmi.power);
    smi_bind(library, "dcmiv2_get_device_temperature", &dcmi.temperature);
    smi_bind(library, "dcmiv2_get_device_utilization_rate", &dcmi.load);
    smi_bind(library, "dcmiv2_get_device_hbm_info", &dcmi.hbm);
    smi_bind(library, "dcmiv2_get_device_proc_mem_info", &dcmi.processes);
    smi_bind(library, "dcmiv2_get_driver_version", &dcmi.driver_version);
    smi_bind(library, "dcmiv2_get_dcmi_version", &dcmi.dcmi_version);
}

static void print_chip(int id)
{
    struct dcmi_chip_info_v2 info = {0};
    struct dcmi_pcie_info_all pci = {0};
    struct dcmi_hbm_info hbm = {0};
    char name[64] = "NA", bus[32] = "NA", watts[16], heat[16], busy[16];
    int tenths = 0, celsius = 0;
    unsigned percent = 0, health = 0;
    if (dcmi.chip_info(id, &info) == DCMI_OK) {
        snprintf(name, sizeof name, "%s", (char *)info.chip_name);
    }
    if (dcmi.pcie_info(id, &pci) == DCMI_OK) {
        snprintf(bus, sizeof bus, "%04X:%02X:%02X.%X", (unsigned)pci.domain, pci.bdf_busid,
                 pci.bdf_deviceid, pci.bdf_funcid);
    }
    int code = dcmi.power(id, &tenths);
    smi_number(watts, sizeof watts, code, tenths / 10.0, 1);
    code = dcmi.temperature(id, &celsius);
    smi_number(heat, sizeof heat, code, celsius, 0);
    code = dcmi.load(id, 13, &percent);
    smi_number(busy, sizeof busy, code, percent, 0);
    (void)dcmi.hbm(id, &hbm);
    code = dcmi.health(id, &health);
    printf("| %-6d | %-16s | %-13s | %-11s %-17s %-5d / %-13d |\n", id, name,
           smi_health_word(code, health), watts, heat, 0, 0);
    printf("| %-6s | %-16s | %-13s | %-11s %-4d / %-10d %-5llu / %-13llu |\n", "", "", bus, busy, 0, 0,
           hbm.memory_usage, hbm.memory_size);
    puts(CHIP_END);
}

static void print_processes(int id)
{
    struct dcmi_proc_mem_info processes[MAX_PROCESSES];
    char name[32], line[64];
    int count = 0;
    if (dcmi.processes(id, processes, &count) != DCMI_OK) {
        count = 0;
    }
    for (int i = 0; i < count; i++) {
        smi_process_name(processes[i].proc_id, name, sizeof name);
        printf("| %-25d | %-13d | %-24s | %-24lu |\n", id, processes[i].proc_id, name,
               processes[i].proc_mem_usage >> 20);
    }
    if (count == 0) {
        snprintf(line, sizeof line, "No running processes found in NPU %d", id);
        printf("| %-95s |\n", line);
    }
    puts(PROCESS_END);
}

static void print_table(const int *list, int count)
{
    char driver[64] = "NA", own[64] = "NA";
    (void)dcmi.driver_version(driver, sizeof driver);
    (void)dcmi.dcmi_version(own, sizeof own);
    puts(WIDE);
    printf("| npu-smi %-23s Version: %-54s |\n", own, driver);
    puts(CHIPS);
    puts("| NPU ID | Name             | Health        | Power(W)    Temp(C)           "
         "Hugepages-Usage(page) |");
    puts("|        |                  | Bus-Id        | NPU Util(%) Memory-Usage(MB)  "
         "HBM-Usage(MB)         |");
    puts(CHIP_END);
    for (int i = 0; i < count; i++) {
        print_chip(list[i]);
    }
    puts(CHIPS);
    puts("| NPU ID                    | Process id    | Process name             | "
         "Process memory(MB)       |");
    puts(PROCESS_END);
    for (int i = 0; i < count; i++) {
        print_processes(list[i]);
    }
}

static void print_list(const int *list, int count)
{
    printf("\t%-31s: %d\n\n", "Total Count", count);
    for (int i = 0; i < count; i++) {
        struct dcmi_elabel_info label = {0};
        (void)dcmi.elabel(list[i], &label);
        printf("\t%-31s: %d\n\t%-31s: %s\n\t%-31s: %s\n\n", "NPU ID", list[i], "Product Name",
               label.product_name, "Serial Number", label.serial_number);
    }
}

int main(int argc, char **argv)
{
    int list[MAX_CARDS], count = 0;
    enum smi_info wanted = smi_info(argc, argv);
    load_dcmi();
    int code = dcmi.init();
    if (code == DCMI_OK) {
        code = dcmi.list(list, &count, MAX_CARDS);
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
