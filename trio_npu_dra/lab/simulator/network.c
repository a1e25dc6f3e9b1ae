/* A chip's links: its RoCE port to the network, its HCCS lanes to the other chips. */
#include <string.h>

#include "board.h"

EXPORT int dcmi_get_device_network_health(int card_id, int device_id, unsigned int *result)
{
    struct board_device device;
    int code = open_to_answer(__func__, card_id, device_id, result, &device, NULL);
    if (code != DCMI_OK) {
        return code;
    }
    if (device.network_health == NONE) {
        return DCMI_NOT_SUPPORT;
    }
    *result = device.network_health;
    return DCMI_OK;
}

/* IPv4 of the RoCE port. Chips of a board without addresses report that none is configured. */
EXPORT int dcmi_get_device_ip(int card_id, int device_id, int input_type, int port_id,
                              struct dcmi_ip_addr *ip, struct dcmi_ip_addr *mask)
{
    static const uint8_t none[4];
    struct board_device device;
    int code = open_device(__func__, card_id, device_id, &device);
    if (code != DCMI_OK) {
        return code;
    }
    if (ip == NULL || mask == NULL || input_type < 0 || input_type >= PORT_KINDS) {
        return DCMI_INVALID_PARAMETER;
    }
    if (device.link_up == NONE) {
        return DCMI_NOT_SUPPORT;
    }
    if (input_type != PORT_ROCE || port_id != 0 || ip->ip_type == IP_V6 ||
        memcmp(device.ip, none, sizeof none) == 0) {
        return DCMI_CONFIG_INFO_NOT_EXIST;
    }
    memcpy(ip->u_addr.ip4, device.ip, sizeof device.ip);
    memcpy(mask->u_addr.ip4, device.ip_mask, sizeof device.ip_mask);
    ip->ip_type = mask->ip_type = IP_V4;
    return DCMI_OK;
}

/* The lanes of an idle board have no traffic. The totals are added to the caller's values. */
EXPORT int dcmi_get_hccs_link_bandwidth_info(int card_id, int device_id,
                                             struct dcmi_hccs_bandwidth_info *info)
{
    struct board_device device;
    struct board_facts facts;
    int code = open_to_answer(__func__, card_id, device_id, info, &device, &facts);
    if (code != DCMI_OK) {
        return code;
    }
    if (facts.has_topology == 0 || device.hccs_status == NONE) {
        return DCMI_NOT_SUPPORT; /* all but servers with 910B or A3 */
    }
    for (int i = 0; i < HCCS_LINKS; i++) {
        info->tx_bandwidth[i] = info->rx_bandwidth[i] = 0;
        info->total_txbw += info->tx_bandwidth[i];
        info->total_rxbw += info->rx_bandwidth[i];
    }
    return DCMI_OK;
}
