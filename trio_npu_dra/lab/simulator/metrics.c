/* What a chip measures: memory, load, heat, power, errors, processes. */
#include "board.h"
#include "occupancy.h"

EXPORT int dcmi_get_device_hbm_info(int card_id, int device_id, struct dcmi_hbm_info *info)
{
    struct board_device device;
    int code = open_to_answer(__func__, card_id, device_id, info, &device, NULL);
    if (code != DCMI_OK) {
        return code;
    }
    if (device.hbm_size == 0) {
        return DCMI_NOT_SUPPORT;
    }
    uint32_t bandwidth = device.utilization[10];
    *info = (struct dcmi_hbm_info){
        .memory_size = device.hbm_size,
        .freq = device.hbm_frequency,
        .memory_usage = device.hbm_used,
        .temp = device.hbm_temperature,
        .bandwith_util_rate = bandwidth == NONE ? 0 : bandwidth,
    };
    return DCMI_OK;
}

EXPORT int dcmi_get_device_memory_info_v3(int card_id, int device_id,
                                          struct dcmi_get_memory_info_stru *info)
{
    struct board_device device;
    int code = open_to_answer(__func__, card_id, device_id, info, &device, NULL);
    if (code != DCMI_OK) {
        return code;
    }
    if (device.ddr_size == 0) {
        return DCMI_NOT_SUPPORT;
    }
    uint64_t used = device.ddr_size - device.ddr_available;
    *info = (struct dcmi_get_memory_info_stru){
        .memory_size = device.ddr_size,
        .memory_available = device.ddr_available,
        .freq = device.ddr_frequency,
        .hugepagesize = 2048,
        .utiliza = (unsigned)(used * 100 / device.ddr_size),
    };
    return DCMI_OK;
}

EXPORT int dcmi_get_device_utilization_rate(int card_id, int device_id, int input_type,
                                            unsigned int *utilization_rate)
{
    struct board_device device;
    int code = open_device(__func__, card_id, device_id, &device);
    if (code != DCMI_OK) {
        return code;
    }
    if (utilization_rate == NULL || input_type < 0 || input_type >= BOARD_UTILIZATIONS) {
        return DCMI_INVALID_PARAMETER;
    }
    if (device.utilization[input_type] == NONE) {
        return DCMI_NOT_SUPPORT;
    }
    *utilization_rate = device.utilization[input_type];
    return DCMI_OK;
}

static unsigned share(const struct board_device *device, int type)
{
    return device->utilization[type] == NONE ? 0 : device->utilization[type];
}

/* AI cores are cube and vector cores: the AI cores' figure stands in for a missing cube figure. */
EXPORT int dcmi_get_device_multi_utilization_rate(int card_id, int device_id,
                                                  struct dcmi_multi_utilization_info *info)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_to_answer(__func__, card_id, device_id, info, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    if (facts.has_topology == 0) {
        return DCMI_NOT_SUPPORT; /* all but 910B and A3 */
    }
    unsigned cores = share(&device, 2), all = share(&device, 13);
    info->aic_util = device.utilization[14] == NONE ? cores : device.utilization[14];
    info->aiv_util = share(&device, 12);
    info->aicore_util = cores;
    info->npu_util = cores > all ? cores : all;
    return DCMI_OK; /* reserved fields stay as they were */
}

EXPORT int dcmi_get_device_temperature(int card_id, int device_id, int *temperature)
{
    struct board_device device;
    int code = open_to_answer(__func__, card_id, device_id, temperature, &device, NULL);
    if (code != DCMI_OK) {
        return code;
    }
    *temperature = device.temperature;
    return DCMI_OK;
}

/* --- power: of the chip, or of its card by the card's MCU -------------------------------------- */

EXPORT int dcmi_mcu_get_power_info(int card_id, int *power)
{
    struct board_device device;
    struct board_facts facts;
    if (power == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    if (board_lock() == NULL) {
        return DCMI_INNER_ERR;
    }
    const struct slot *first = cards_first(card_id);
    int device_id = first != NULL ? first->device_id : -1;
    board_unlock();
    /* Calls reach the MCU through the card's chip. Before dcmi_init there is no card. */
    int code = open_with_facts(__func__, card_id, device_id, &device, &facts);
    if (code != DCMI_OK) {
        return device_id < 0 && code == DCMI_NOT_SUPPORT ? DCMI_UNLISTED : code;
    }
    if (facts.power_by_mcu == 0) {
        return DCMI_NOT_SUPPORT;
    }
    *power = device.power;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_power_info(int card_id, int device_id, int *power)
{
    struct board_device device;
    struct board_facts facts;
    if (power == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    if (cards_has_mcu(card_id, device_id)) {
        return dcmi_mcu_get_power_info(card_id, power);
    }
    int code = open_with_facts(__func__, card_id, device_id, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    if (facts.power_by_mcu != 0) {
        return DCMI_NOT_SUPPORT;
    }
    *power = device.power;
    return DCMI_OK;
}

/* --- errors of memory, processes -------------------------------------------------------------- */

EXPORT int dcmi_get_device_ecc_info(int card_id, int device_id, int input_type,
                                    struct dcmi_ecc_info *info)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_with_facts(__func__, card_id, device_id, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    if (info == NULL || input_type < 0 || input_type > ECC_LAST_KIND) {
        return DCMI_INVALID_PARAMETER;
    }
    if ((facts.ecc_kinds & 1u << input_type) == 0) {
        return DCMI_NOT_SUPPORT;
    }
    *info = (struct dcmi_ecc_info){
        .enable_flag = 1,
        .single_bit_error_cnt = device.ecc_single,
        .double_bit_error_cnt = device.ecc_double,
        .total_single_bit_error_cnt = device.ecc_single,
        .total_double_bit_error_cnt = device.ecc_double,
        .double_bit_isolated_pages_cnt = device.ecc_double,
    };
    return DCMI_OK;
}

/* Whether a container has the chip, as the host sees it. */
static bool is_in_use(int index)
{
    bool used = !board_is_in_container() && board_lock() != NULL;
    if (used) {
        used = occupancy_any(index);
        board_unlock();
    }
    return used;
}

/* A container that has the chip counts as a process of no memory; its pid is not known here: 0. */
EXPORT int dcmi_get_device_resource_info(int card_id, int device_id,
                                         struct dcmi_proc_mem_info *proc_info, int *proc_num)
{
    struct board_device device;
    struct slot slot;
    int code = look_up(__func__, card_id, device_id, &slot, &device);
    code = code != DCMI_OK ? code : check_presence(__func__, &device);
    if (code != DCMI_OK) {
        return code;
    }
    if (proc_info == NULL || proc_num == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    for (uint32_t i = 0; i < device.process_count; i++) {
        proc_info[i].proc_id = device.processes[i].pid;
        proc_info[i].proc_mem_usage = (unsigned long)device.processes[i].memory;
    }
    *proc_num = (int)device.process_count;
    if (device.process_count < BOARD_PROCESSES && is_in_use(slot.index)) {
        proc_info[(*proc_num)++] = (struct dcmi_proc_mem_info){0};
    }
    return DCMI_OK;
}
