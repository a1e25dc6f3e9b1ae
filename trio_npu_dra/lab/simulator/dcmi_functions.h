/* The functions of the first generation that the second one (dcmiv2.c) has too, under its names. */
#ifndef SIMULATOR_DCMI_FUNCTIONS_H
#define SIMULATOR_DCMI_FUNCTIONS_H

#include "dcmi_abi.h"

int dcmi_init(void);

int dcmi_get_device_type(int card_id, int device_id, int *device_type);
int dcmi_get_device_phyid_from_logicid(unsigned int logicid, unsigned int *phyid);
int dcmi_get_device_chip_info_v2(int card_id, int device_id, struct dcmi_chip_info_v2 *info);
int dcmi_get_device_board_info(int card_id, int device_id, struct dcmi_board_info *info);
int dcmi_get_mainboard_id(int card_id, int device_id, unsigned int *mainboard_id);
int dcmi_get_device_pcie_info_v2(int card_id, int device_id, struct dcmi_pcie_info_all *info);
int dcmi_get_device_die_v2(int card_id, int device_id, int type, struct dcmi_die_id *die);
int dcmi_get_device_elabel_info(int card_id, int device_id, struct dcmi_elabel_info *label);
int dcmi_get_driver_version(char *version, unsigned int len);
int dcmi_get_dcmi_version(char *version, unsigned int len);

int dcmi_get_device_hbm_info(int card_id, int device_id, struct dcmi_hbm_info *info);
int dcmi_get_device_ecc_info(int card_id, int device_id, int input_type,
                             struct dcmi_ecc_info *info);
int dcmi_get_device_temperature(int card_id, int device_id, int *temperature);
int dcmi_get_device_power_info(int card_id, int device_id, int *power);
int dcmi_get_device_utilization_rate(int card_id, int device_id, int input_type,
                                     unsigned int *utilization_rate);
int dcmi_get_device_multi_utilization_rate(int card_id, int device_id,
                                           struct dcmi_multi_utilization_info *info);
int dcmi_get_device_resource_info(int card_id, int device_id, struct dcmi_proc_mem_info *proc_info,
                                  int *proc_num);
int dcmi_get_device_info(int card_id, int device_id, int main_cmd, unsigned int sub_cmd, void *buf,
                         unsigned int *size);

int dcmi_get_device_health(int card_id, int device_id, unsigned int *health);
int dcmi_get_device_boot_status(int card_id, int device_id, unsigned int *boot_status);
int dcmi_get_device_network_health(int card_id, int device_id, unsigned int *result);
int dcmi_get_device_errorcode_v2(int card_id, int device_id, int *error_count,
                                 unsigned int *error_code_list, unsigned int list_len);
int dcmi_get_device_errorcode_string(int card_id, int device_id, unsigned int error_code,
                                     unsigned char *error_info, int buf_size);
int dcmi_subscribe_fault_event(int card_id, int device_id, struct dcmi_event_filter filter,
                               dcmi_fault_event_callback handler);

int dcmi_get_topo_info_by_device_id(int card_id1, int device_id1, int card_id2, int device_id2,
                                    int *topo_type);
int dcmi_get_affinity_cpu_info_by_device_id(int card_id, int device_id, char *affinity_cpu,
                                            int *length);
int dcmi_get_device_share_enable(int card_id, int device_id, int *enable_flag);
int dcmi_set_device_share_enable(int card_id, int device_id, int enable_flag);

#endif
