/* The second generation, for Ascend 950: a chip is named by its logic id, called the dev id.
 *
 * A call is the first generation's of the same meaning under a name of its own: rules for calls and
 * the check of the generation go by that name (call_as).
 */
#include "board.h"

struct address {
    int card_id;
    int device_id;
};

/* Where a dev id leads. That of no chip, or of one that did not answer dcmiv2_init, leads to a card
 * that no board has.
 */
static struct address address_of(int dev_id)
{
    struct address at = {-2, 0};
    if (board_lock() != NULL) {
        bool is_known = dev_id >= 0 && dev_id < cards()->count;
        const struct slot *slot = is_known ? &cards()->slots[dev_id] : NULL;
        if (is_known && !slot->failed) {
            at = (struct address){slot->card_id, slot->device_id};
        }
        board_unlock();
    }
    return at;
}

#define RETURN_AS_OWN(call)    \
    do {                       \
        call_as(__func__);     \
        int answer = (call);   \
        call_as(NULL);         \
        return answer;         \
    } while (0)

#define RETURN_OF_CHIP(function, ...)                                      \
    do {                                                                   \
        struct address at = address_of(dev_id);                            \
        RETURN_AS_OWN(function(at.card_id, at.device_id, __VA_ARGS__));    \
    } while (0)

EXPORT int dcmiv2_init(void)
{
    RETURN_AS_OWN(dcmi_init());
}

/* Chips that did not answer dcmiv2_init are left out; the others keep their numbers (source). */
EXPORT int dcmiv2_get_device_list(int *device_list, int *device_cnt, int list_len)
{
    int count = 0;
    int code = obey(__func__, -1);
    if (code != DCMI_OK) {
        return code;
    }
    if (device_list == NULL || device_cnt == NULL || list_len <= 0) {
        return DCMI_INVALID_PARAMETER;
    }
    if (board_lock() == NULL) {
        return DCMI_INNER_ERR;
    }
    const struct snapshot *seen = cards();
    code = !seen->ready ? DCMI_INNER_ERR : seen->count > list_len ? DCMI_INVALID_PARAMETER : code;
    for (int i = 0; code == DCMI_OK && i < seen->count; i++) {
        if (!seen->slots[i].failed) {
            device_list[count++] = i;
        }
    }
    board_unlock();
    *device_cnt = count;
    return code;
}

EXPORT int dcmiv2_get_chip_phy_id_by_dev_id(int dev_id, unsigned int *phyid)
{
    RETURN_AS_OWN(dcmi_get_device_phyid_from_logicid((unsigned int)dev_id, phyid));
}

/* --- what a chip is -------------------------------------------------------------------------- */

EXPORT int dcmiv2_get_device_type(int dev_id, int *device_type)
{
    RETURN_OF_CHIP(dcmi_get_device_type, device_type);
}

EXPORT int dcmiv2_get_device_chip_info(int dev_id, struct dcmi_chip_info_v2 *info)
{
    RETURN_OF_CHIP(dcmi_get_device_chip_info_v2, info);
}

EXPORT int dcmiv2_get_device_board_info(int dev_id, struct dcmi_board_info *info)
{
    RETURN_OF_CHIP(dcmi_get_device_board_info, info);
}

EXPORT int dcmiv2_get_mainboard_id(int dev_id, unsigned int *mainboard_id)
{
    RETURN_OF_CHIP(dcmi_get_mainboard_id, mainboard_id);
}

EXPORT int dcmiv2_get_device_pcie_info(int dev_id, struct dcmi_pcie_info_all *info)
{
    RETURN_OF_CHIP(dcmi_get_device_pcie_info_v2, info);
}

EXPORT int dcmiv2_get_device_die_id(int dev_id, int type, struct dcmi_die_id *die)
{
    if (type < 0 || type >= DIE_KINDS) {
        return DCMI_INVALID_PARAMETER;
    }
    RETURN_OF_CHIP(dcmi_get_device_die_v2, type, die);
}

EXPORT int dcmiv2_get_device_elabel_info(int dev_id, struct dcmi_elabel_info *label)
{
    RETURN_OF_CHIP(dcmi_get_device_elabel_info, label);
}

EXPORT int dcmiv2_get_driver_version(char *version, unsigned int len)
{
    RETURN_AS_OWN(dcmi_get_driver_version(version, len));
}

EXPORT int dcmiv2_get_dcmi_version(char *version, unsigned int len)
{
    RETURN_AS_OWN(dcmi_get_dcmi_version(version, len));
}

EXPORT int dcmiv2_get_device_info(int dev_id, int main_cmd, unsigned int sub_cmd, void *buf,
                                  unsigned int *size)
{
    RETURN_OF_CHIP(dcmi_get_device_info, main_cmd, sub_cmd, buf, size);
}

/* --- what it measures ------------------------------------------------------------------------ */

EXPORT int dcmiv2_get_device_hbm_info(int dev_id, struct dcmi_hbm_info *info)
{
    RETURN_OF_CHIP(dcmi_get_device_hbm_info, info);
}

EXPORT int dcmiv2_get_device_ecc_info(int dev_id, int input_type, struct dcmi_ecc_info *info)
{
    RETURN_OF_CHIP(dcmi_get_device_ecc_info, input_type, info);
}

EXPORT int dcmiv2_get_device_temperature(int dev_id, int *temperature)
{
    RETURN_OF_CHIP(dcmi_get_device_temperature, temperature);
}

EXPORT int dcmiv2_get_device_power_info(int dev_id, int *power)
{
    RETURN_OF_CHIP(dcmi_get_device_power_info, power);
}

EXPORT int dcmiv2_get_device_utilization_rate(int dev_id, int input_type, unsigned int *percent)
{
    RETURN_OF_CHIP(dcmi_get_device_utilization_rate, input_type, percent);
}

EXPORT int dcmiv2_get_device_multi_utilization_rate(int dev_id,
                                                    struct dcmi_multi_utilization_info *info)
{
    RETURN_OF_CHIP(dcmi_get_device_multi_utilization_rate, info);
}

EXPORT int dcmiv2_get_device_proc_mem_info(int dev_id, struct dcmi_proc_mem_info *proc_info,
                                           int *proc_num)
{
    RETURN_OF_CHIP(dcmi_get_device_resource_info, proc_info, proc_num);
}

/* --- health ---------------------------------------------------------------------------------- */

EXPORT int dcmiv2_get_device_health(int dev_id, unsigned int *health)
{
    RETURN_OF_CHIP(dcmi_get_device_health, health);
}

EXPORT int dcmiv2_get_device_boot_status(int dev_id, unsigned int *boot_status)
{
    RETURN_OF_CHIP(dcmi_get_device_boot_status, boot_status);
}

EXPORT int dcmiv2_get_device_network_health(int dev_id, unsigned int *result)
{
    RETURN_OF_CHIP(dcmi_get_device_network_health, result);
}

EXPORT int dcmiv2_get_device_error_code_list(int dev_id, int *error_count,
                                             unsigned int *error_code_list, unsigned int list_len)
{
    RETURN_OF_CHIP(dcmi_get_device_errorcode_v2, error_count, error_code_list, list_len);
}

EXPORT int dcmiv2_get_device_error_info(int dev_id, unsigned int error_code,
                                        unsigned char *error_info, int buf_size)
{
    RETURN_OF_CHIP(dcmi_get_device_errorcode_string, error_code, error_info, buf_size);
}

EXPORT int dcmiv2_subscribe_fault_event(int dev_id, struct dcmi_event_filter filter,
                                        dcmi_fault_event_callback handler)
{
    if (dev_id == -1) {
        RETURN_AS_OWN(dcmi_subscribe_fault_event(-1, -1, filter, handler));
    }
    RETURN_OF_CHIP(dcmi_subscribe_fault_event, filter, handler);
}

/* --- how chips are linked and shared --------------------------------------------------------- */

EXPORT int dcmiv2_get_topo_info_by_device_id(int dev_id, int other_dev_id, int *topo_type)
{
    struct address other = address_of(other_dev_id);
    RETURN_OF_CHIP(dcmi_get_topo_info_by_device_id, other.card_id, other.device_id, topo_type);
}

EXPORT int dcmiv2_get_affinity_cpu_info_by_dev_id(int dev_id, char *affinity_cpu, int *length)
{
    RETURN_OF_CHIP(dcmi_get_affinity_cpu_info_by_device_id, affinity_cpu, length);
}

EXPORT int dcmiv2_get_device_share_enable(int dev_id, unsigned int *enable_flag)
{
    RETURN_OF_CHIP(dcmi_get_device_share_enable, (int *)enable_flag);
}

EXPORT int dcmiv2_set_device_share_enable(int dev_id, unsigned int enable_flag)
{
    RETURN_OF_CHIP(dcmi_set_device_share_enable, (int)enable_flag);
}
