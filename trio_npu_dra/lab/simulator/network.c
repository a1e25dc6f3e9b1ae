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

/* Opens a chip that has a RoCE port, for a call about it. */
static int open_port(const char *function, int card_id, int device_id, int input_type,
                     struct board_device *device)
{
    int code = open_device(function, card_id, device_id, device);
    if (code != DCMI_OK) {
        return code;
    }
    if (input_type < 0 || input_type >= PORT_KINDS) {
        return DCMI_INVALID_PARAMETER;
    }
    return device->link_up == NONE ? DCMI_NOT_SUPPORT : DCMI_OK;
}

static bool has_address(const struct board_device *device, const struct dcmi_ip_addr *asked)
{
    return device->ip_version == (asked->ip_type == IP_V6 ? 6u : 4u);
}

EXPORT int dcmi_get_device_ip(int card_id, int device_id, int input_type, int port_id,
                              struct dcmi_ip_addr *ip, struct dcmi_ip_addr *mask)
{
    struct board_device device;
    int code = open_port(__func__, card_id, device_id, input_type, &device);
    if (code != DCMI_OK) {
        return code;
    }
    if (ip == NULL || mask == NULL) {
        return DCMI_INVALID_PARAMETER;
    }
    if (input_type != PORT_ROCE || port_id != 0 || !has_address(&device, ip)) {
        return DCMI_CONFIG_INFO_NOT_EXIST;
    }
    memcpy(ip->u_addr.ip6, device.ip, sizeof device.ip);
    memcpy(mask->u_addr.ip6, device.ip_mask, sizeof device.ip_mask);
    return DCMI_OK;
}

/* A port without an address has no gateway either; one without a gateway says 0.0.0.0 (source). */
EXPORT int dcmi_get_device_gateway(int card_id, int device_id, int input_type, int port_id,
                                   struct dcmi_ip_addr *gateway)
{
    struct board_device device;
    int code = open_port(__func__, card_id, device_id, input_type, &device);
    if (code != DCMI_OK) {
        return code;
    }
    if (gateway == NULL || input_type != PORT_ROCE) {
        return DCMI_INVALID_PARAMETER;
    }
    if (port_id != 0 || !has_address(&device, gateway)) {
        return DCMI_DEVICE_NOT_EXIST;
    }
    memcpy(gateway->u_addr.ip6, device.gateway, sizeof device.gateway);
    return DCMI_OK;
}

EXPORT int dcmi_get_device_mac(int card_id, int device_id, int mac_id, char *mac_addr,
                               unsigned int len)
{
    struct board_device device;
    int code = open_port(__func__, card_id, device_id, PORT_ROCE, &device);
    if (code != DCMI_OK) {
        return code;
    }
    if (mac_addr == NULL || mac_id != 0 || len < sizeof device.mac) {
        return DCMI_INVALID_PARAMETER;
    }
    memcpy(mac_addr, device.mac, sizeof device.mac);
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
