/* The cards and chips, and the identity of each. */
#include <stdlib.h>
#include <string.h>

#include "board.h"
#include "occupancy.h"
#include "vnpu.h"

EXPORT int dcmi_init(void)
{
    int code = begin_init(__func__);
    bool in_container = code == DCMI_OK && board_is_in_container();
    const struct board *board = code == DCMI_OK ? board_lock() : NULL;
    if (board != NULL) {
        code = cards_refresh(board);
        if (code == DCMI_OK && in_container && (code = occupancy_take(board, cards())) != DCMI_OK) {
            cards()->ready = false;
        }
        board_unlock();
    } else if (code == DCMI_OK) {
        code = DCMI_INNER_ERR;
    }
    end_init();
    return code;
}

static int ascending(const void *left, const void *right)
{
    return *(const int *)left - *(const int *)right;
}

static int list_cards(const char *function, int *card_num, int *card_list, int list_len)
{
    int code = obey(function, -1);
    if (code != DCMI_OK) {
        return code;
    }
    if (card_num == NULL || card_list == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    if (board_lock() == NULL) {
        return DCMI_INNER_ERR;
    }
    const struct snapshot *seen = cards();
    int count = 0;
    code = seen->ready ? DCMI_OK : DCMI_INNER_ERR;
    for (int i = 0; code == DCMI_OK && i < seen->count; i++) {
        if (i > 0 && seen->slots[i].card_id == seen->slots[i - 1].card_id) {
            continue; /* another chip of the same card */
        }
        if (count == list_len) {
            code = DCMI_INVALID_PARAMETER;
        } else {
            card_list[count++] = seen->slots[i].lost ? -1 : seen->slots[i].card_id;
        }
    }
    qsort(card_list, (size_t)count, sizeof *card_list, ascending); /* lost ones come first */
    *card_num = code == DCMI_OK ? count : 0;
    board_unlock();
    return code;
}

EXPORT int dcmi_get_card_list(int *card_num, int *card_list, int list_len)
{
    return list_cards(__func__, card_num, card_list, list_len);
}

static int count_chips(const char *function, int card_id, int *count)
{
    int code = obey(function, -1);
    if (code != DCMI_OK) {
        return code;
    }
    if (count == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    if (board_lock() == NULL) {
        return DCMI_INNER_ERR;
    }
    const struct snapshot *seen = cards();
    *count = 0;
    for (int i = 0; i < seen->count; i++) {
        *count += seen->slots[i].card_id == card_id && !seen->slots[i].lost;
    }
    code = !seen->ready ? DCMI_NOT_SUPPORT : *count == 0 ? DCMI_UNLISTED : DCMI_OK;
    board_unlock();
    return code;
}

EXPORT int dcmi_get_device_num_in_card(int card_id, int *device_num)
{
    return count_chips(__func__, card_id, device_num);
}

EXPORT int dcmi_get_device_id_in_card(int card_id, int *device_id_max, int *mcu_id, int *cpu_id)
{
    int visible;
    if (device_id_max == NULL || mcu_id == NULL || cpu_id == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    int code = count_chips(__func__, card_id, &visible);
    if (code != DCMI_OK) {
        return code;
    }
    const struct board *board = board_lock();
    if (board == NULL) {
        return DCMI_INNER_ERR;
    }
    *device_id_max = cards_chips(board, card_id);
    *mcu_id = board->facts.has_mcu != 0 && !cards_is_vnpu(card_id) ? *device_id_max : -1;
    *cpu_id = -1;
    board_unlock();
    return DCMI_OK;
}

EXPORT int dcmi_get_device_type(int card_id, int device_id, int *device_type)
{
    struct slot slot;
    struct board_device device;
    if (device_type == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    *device_type = UNIT_INVALID;
    int code = look_up(__func__, card_id, device_id, &slot, &device);
    if (code == DCMI_OK) {
        *device_type = UNIT_NPU;
    } else if (code == DCMI_UNLISTED && cards_has_mcu(card_id, device_id)) {
        *device_type = UNIT_MCU;
    }
    return code == DCMI_UNLISTED || code == DCMI_NOT_SUPPORT ? DCMI_OK : code;
}

/* --- what a chip is -------------------------------------------------------------------------- */

EXPORT int dcmi_get_device_chip_info_v2(int card_id, int device_id, struct dcmi_chip_info_v2 *info)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_to_answer(__func__, card_id, device_id, info, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    memset(info, 0, sizeof *info);
    memcpy(info->chip_type, facts.chip_type, sizeof info->chip_type);
    memcpy(info->chip_name, facts.chip_name, sizeof info->chip_name);
    vnpu_add_to_name(&device, (char *)info->chip_name, sizeof info->chip_name);
    memcpy(info->chip_ver, facts.chip_version, sizeof info->chip_ver);
    memcpy(info->npu_name, facts.npu_name, sizeof info->npu_name);
    info->aicore_cnt = device.aicore_count;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_chip_info(int card_id, int device_id, struct dcmi_chip_info *info)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_to_answer(__func__, card_id, device_id, info, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    memcpy(info->chip_type, facts.chip_type, sizeof info->chip_type);
    memcpy(info->chip_name, facts.chip_name, sizeof info->chip_name);
    vnpu_add_to_name(&device, (char *)info->chip_name, sizeof info->chip_name);
    memcpy(info->chip_ver, facts.chip_version, sizeof info->chip_ver);
    info->aicore_cnt = device.aicore_count;
    return DCMI_OK;
}

EXPORT int dcmi_get_product_type(int card_id, int device_id, char *product_type, int buf_size)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_with_facts(__func__, card_id, device_id, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    if (facts.product_type[0] == '\0') {
        return DCMI_NOT_SUPPORT;
    }
    if (product_type == NULL || buf_size < 32) {
        return DCMI_INVALID_PARAMETER;
    }
    put_text(product_type, (size_t)buf_size, facts.product_type);
    return DCMI_OK;
}

EXPORT int dcmi_get_device_board_info(int card_id, int device_id, struct dcmi_board_info *info)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_to_answer(__func__, card_id, device_id, info, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    *info = (struct dcmi_board_info){facts.board_id, facts.pcb_id, facts.bom_id, device.slot_id};
    return DCMI_OK;
}

EXPORT int dcmi_get_mainboard_id(int card_id, int device_id, unsigned int *mainboard_id)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_to_answer(__func__, card_id, device_id, mainboard_id, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    if (facts.mainboard_id == NONE) {
        return DCMI_NOT_SUPPORT;
    }
    *mainboard_id = facts.mainboard_id;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_pcie_info_v2(int card_id, int device_id,
                                        struct dcmi_pcie_info_all *info)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_to_answer(__func__, card_id, device_id, info, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    if (device.pci_domain == NONE) {
        return DCMI_NOT_SUPPORT;
    }
    *info = (struct dcmi_pcie_info_all){
        .venderid = facts.pci_vendor,
        .subvenderid = facts.pci_subvendor,
        .deviceid = facts.pci_device,
        .subdeviceid = facts.pci_subdevice,
        .domain = (int)device.pci_domain,
        .bdf_busid = device.pci_bus,
        .bdf_deviceid = device.pci_device,
        .bdf_funcid = device.pci_function,
    };
    return DCMI_OK;
}

EXPORT int dcmi_get_device_die_v2(int card_id, int device_id, int type, struct dcmi_die_id *die)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_to_answer(__func__, card_id, device_id, die, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    if (type != (int)facts.die_type) {
        return DCMI_NOT_SUPPORT;
    }
    memcpy(die->soc_die, device.die, sizeof die->soc_die);
    return DCMI_OK;
}

EXPORT int dcmi_get_device_elabel_info(int card_id, int device_id, struct dcmi_elabel_info *label)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_to_answer(__func__, card_id, device_id, label, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    put_text(label->product_name, sizeof label->product_name, facts.elabel_product);
    put_text(label->model, sizeof label->model, facts.elabel_model);
    put_text(label->manufacturer, sizeof label->manufacturer, facts.elabel_manufacturer);
    put_text(label->manufacturer_date, sizeof label->manufacturer_date, facts.elabel_date);
    put_text(label->serial_number, sizeof label->serial_number, device.serial_number);
    return DCMI_OK;
}

EXPORT int dcmi_get_driver_version(char *version, unsigned int len)
{
    struct board_facts facts;
    int code = obey(__func__, -1);
    if (code != DCMI_OK || (code = read_facts(&facts)) != DCMI_OK) {
        return code;
    }
    if (version == NULL || len == 0) {
        return DCMI_INVALID_PARAMETER;
    }
    put_text(version, len, facts.driver_version);
    return DCMI_OK;
}

EXPORT int dcmi_get_dcmi_version(char *version, unsigned int len)
{
    struct board_facts facts;
    int code = obey(__func__, -1);
    if (code != DCMI_OK) {
        return code;
    }
    if (read_facts(&facts) == DCMI_INNER_ERR) {
        return DCMI_INNER_ERR; /* but known before dcmi_init, because it is the library's own */
    }
    if (version == NULL || len == 0) {
        return DCMI_INVALID_PARAMETER;
    }
    put_text(version, len, facts.dcmi_version);
    return DCMI_OK;
}
