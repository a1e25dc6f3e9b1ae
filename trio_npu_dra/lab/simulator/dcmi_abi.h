/* The part of the vendor's ABI that discovery and health need: constants and struct layouts, from
 * the DCMI reference and measured with a compiler (LP64: equal on x86-64 and aarch64).
 */
#ifndef SIMULATOR_DCMI_ABI_H
#define SIMULATOR_DCMI_ABI_H

#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    DCMI_OK = 0,
    DCMI_INVALID_PARAMETER = -8001,
    DCMI_OPER_NOT_PERMITTED = -8002,
    DCMI_SECURE_FUN_FAIL = -8004,
    DCMI_INNER_ERR = -8005,
    DCMI_TIME_OUT = -8006,
    DCMI_DEVICE_NOT_EXIST = -8008,
    DCMI_NOT_READY = -8012,
    DCMI_BUSY = -8013,
    DCMI_RESOURCE_OCCUPIED = -8020,
    DCMI_CONFIG_INFO_NOT_EXIST = -8023,
    DCMI_NOT_SUPPORT = -8255,
};

/* The result of calls about a card that dcmi_init did not list: a wrong argument. */
#define DCMI_UNLISTED DCMI_INVALID_PARAMETER

enum { UNIT_NPU = 0, UNIT_MCU = 1, UNIT_INVALID = 0xFF };
enum { DIE_KINDS = 3 };
enum { HEALTH_UNKNOWN = -1 };
enum { BOOT_BIOS = 1, BOOT_SERVICE_STARTED = 16 };
enum { MAIN_CHIP_INF = 12, MAIN_HCCS = 16, MAIN_VDEV_MNG = 52, MAIN_SIO = 56 };
enum { SUB_SPOD_INFO = 1, SUB_HCCS_STATUS = 0, SUB_SIO_STATUS = 0 };
enum { SUB_VDEV_RESOURCE = 0, SUB_TOTAL_RESOURCE = 1, SUB_FREE_RESOURCE = 2, SUB_VDEV_ACTIVITY = 5 };
enum { VNPU_FOR_CONTAINERS = 0, VNPU_FOR_VMS = 1 };
#define VDEV_AUTO 0xFFFFFFFFu /* the library chooses */
#define VDEV_ALL 0xFFFFu      /* in a call that destroys: all vNPUs of the chip */
enum { ECC_LAST_KIND = 5 };
enum { PORT_VNIC = 0, PORT_ROCE = 1, PORT_KINDS = 2 };
enum { IP_V4 = 0, IP_V6 = 1 };
enum { HCCS_LINKS = 16 };
#define UNKNOWN_RESOURCE (-1.0f) /* what vNPU queries give for an unknown share */

struct dcmi_sio_status { /* errors of the link between the dies of a card */
    unsigned short tx_errors;
    unsigned short rx_errors;
    unsigned char reserved[8];
};

struct dcmi_chip_info {
    unsigned char chip_type[32];
    unsigned char chip_name[32];
    unsigned char chip_ver[32];
    unsigned int aicore_cnt;
};

struct dcmi_chip_info_v2 {
    unsigned char chip_type[32];
    unsigned char chip_name[32];
    unsigned char chip_ver[32];
    unsigned int aicore_cnt;
    unsigned char npu_name[32];
};

struct dcmi_pcie_info_all {
    unsigned int venderid;
    unsigned int subvenderid;
    unsigned int deviceid;
    unsigned int subdeviceid;
    int domain;
    unsigned int bdf_busid;
    unsigned int bdf_deviceid;
    unsigned int bdf_funcid;
    unsigned char reserve[32];
};

struct dcmi_board_info {
    unsigned int board_id;
    unsigned int pcb_id;
    unsigned int bom_id;
    unsigned int slot_id;
};

struct dcmi_die_id {
    unsigned int soc_die[5];
};

struct dcmi_elabel_info {
    char product_name[256];
    char model[256];
    char manufacturer[256];
    char manufacturer_date[256];
    char serial_number[256];
};

/* mind-cluster's header declares two more words, which no driver writes. */
struct dcmi_ecc_info {
    int enable_flag;
    unsigned int single_bit_error_cnt;
    unsigned int double_bit_error_cnt;
    unsigned int total_single_bit_error_cnt;
    unsigned int total_double_bit_error_cnt;
    unsigned int single_bit_isolated_pages_cnt;
    unsigned int double_bit_isolated_pages_cnt;
};

struct dcmi_hbm_info {
    unsigned long long memory_size;
    unsigned int freq;
    unsigned long long memory_usage;
    int temp;
    unsigned int bandwith_util_rate;
};

struct dcmi_get_memory_info_stru {
    unsigned long long memory_size;
    unsigned long long memory_available;
    unsigned int freq;
    unsigned long hugepagesize;
    unsigned long hugepages_total;
    unsigned long hugepages_free;
    unsigned int utiliza;
    unsigned char reserve[60];
};

struct dcmi_proc_mem_info {
    int proc_id;
    unsigned long proc_mem_usage;
};

struct dcmi_multi_utilization_info {
    unsigned int aic_util;
    unsigned int aiv_util;
    unsigned int aicore_util;
    unsigned int npu_util;
    unsigned int reserved[8];
};

struct dcmi_ip_addr {
    union {
        unsigned char ip6[16];
        unsigned char ip4[4];
    } u_addr;
    int ip_type;
};

/* In: profiling_time, in ms. The rates are in GB/s. */
struct dcmi_hccs_bandwidth_info {
    int profiling_time;
    double total_txbw;
    double total_rxbw;
    double tx_bandwidth[HCCS_LINKS];
    double rx_bandwidth[HCCS_LINKS];
};

struct dcmi_spod_info {
    unsigned int sdid;
    unsigned int super_pod_size;
    unsigned int super_pod_id;
    unsigned int server_index;
    unsigned int chassis_id;
    unsigned int super_pod_type;
    unsigned int reserve[6];
};

struct dcmi_hccs_status {
    unsigned int pcs_status;
    unsigned int hdlc_status;
    unsigned char reserve[4];
};

struct dcmi_base_resource {
    unsigned long long token;
    unsigned long long token_max;
    unsigned long long task_timeout;
    unsigned int vfg_id;
    unsigned char vip_mode;
    unsigned char reserved[31];
};

struct dcmi_computing_resource {
    float aic;
    float aiv;
    unsigned short dsa, rtsq, acsq, cdqm, c_core, ffts, sdma, pcie_dma;
    unsigned long long memory_size;
    unsigned int event_id, notify_id, stream_id, model_id;
    unsigned short topic_schedule_aicpu, host_ctrl_cpu, host_aicpu, device_aicpu;
    unsigned short topic_ctrl_cpu_slot;
    unsigned int vdev_aicore_utilization;
    unsigned long long vdev_memory_total;
    unsigned long long vdev_memory_free;
    unsigned char reserved[16];
};

struct dcmi_media_resource {
    float jpegd, jpege, vpc, vdec, pngd, venc;
    unsigned char reserved[32];
};

struct dcmi_soc_total_resource {
    unsigned int vdev_num;
    unsigned int vdev_id[32];
    unsigned int vfg_num;
    unsigned int vfg_bitmap;
    struct dcmi_base_resource base;
    struct dcmi_computing_resource computing;
    struct dcmi_media_resource media;
};

struct dcmi_soc_free_resource {
    unsigned int vfg_num;
    unsigned int vfg_bitmap;
    struct dcmi_base_resource base;
    struct dcmi_computing_resource computing;
    struct dcmi_media_resource media;
};

struct dcmi_vdev_query_info {
    char name[16];
    unsigned int status;
    unsigned int is_container_used;
    unsigned int vfid;
    unsigned int vfg_id;
    unsigned long long container_id;
    struct dcmi_base_resource base;
    struct dcmi_computing_resource computing;
    struct dcmi_media_resource media;
};

/* In: vdev_id. */
struct dcmi_vdev_query_stru {
    unsigned int vdev_id;
    struct dcmi_vdev_query_info query_info;
};

struct dcmi_create_vdev_res_stru {
    unsigned int vdev_id;
    unsigned int vfg_id;
    char template_name[32];
    unsigned char reserved[64];
};

struct dcmi_create_vdev_out {
    unsigned int vdev_id;
    unsigned int pcie_bus;
    unsigned int pcie_device;
    unsigned int pcie_func;
    unsigned int vfg_id;
    unsigned char reserved[32];
};

struct dcmi_dms_fault_event {
    unsigned int event_id;
    unsigned short deviceid; /* the LOGIC id */
    unsigned char node_type;
    unsigned char node_id;
    unsigned char sub_node_type;
    unsigned char sub_node_id;
    unsigned char severity;
    unsigned char assertion;
    int event_serial_num;
    int notify_serial_num;
    unsigned long long alarm_raised_time;
    char event_name[256];
    char additional_info[32];
    unsigned char resv[32];
};

struct dcmi_event {
    int type; /* 0: a DMS fault event */
    union {
        struct dcmi_dms_fault_event dms_event;
    } event_t;
};

struct dcmi_event_filter {
    unsigned long long filter_flag; /* bit 0 event_id, bit 1 severity and above, bit 2 node_type */
    unsigned int event_id;
    unsigned char severity;
    unsigned char node_type;
    unsigned char resv[32];
};

typedef void (*dcmi_fault_event_callback)(struct dcmi_event *);

#define SIZE_IS(type, bytes) \
    _Static_assert(sizeof(struct type) == (bytes), #type " has another size")
#define OFFSET_IS(type, field, bytes) \
    _Static_assert(offsetof(struct type, field) == (bytes), #type "." #field " is elsewhere")

SIZE_IS(dcmi_chip_info, 100);
SIZE_IS(dcmi_chip_info_v2, 132);
OFFSET_IS(dcmi_chip_info_v2, aicore_cnt, 96);
OFFSET_IS(dcmi_chip_info_v2, npu_name, 100);
SIZE_IS(dcmi_pcie_info_all, 64);
SIZE_IS(dcmi_board_info, 16);
SIZE_IS(dcmi_die_id, 20);
SIZE_IS(dcmi_elabel_info, 1280);
SIZE_IS(dcmi_ecc_info, 28);
SIZE_IS(dcmi_hbm_info, 32);
OFFSET_IS(dcmi_hbm_info, memory_usage, 16);
SIZE_IS(dcmi_get_memory_info_stru, 112);
SIZE_IS(dcmi_proc_mem_info, 16);
SIZE_IS(dcmi_multi_utilization_info, 48);
SIZE_IS(dcmi_ip_addr, 20);
OFFSET_IS(dcmi_ip_addr, ip_type, 16);
SIZE_IS(dcmi_hccs_bandwidth_info, 280);
OFFSET_IS(dcmi_hccs_bandwidth_info, tx_bandwidth, 24);
OFFSET_IS(dcmi_hccs_bandwidth_info, rx_bandwidth, 152);
SIZE_IS(dcmi_spod_info, 48);
SIZE_IS(dcmi_base_resource, 64);
SIZE_IS(dcmi_computing_resource, 96);
OFFSET_IS(dcmi_computing_resource, memory_size, 24);
OFFSET_IS(dcmi_computing_resource, device_aicpu, 54);
OFFSET_IS(dcmi_computing_resource, vdev_memory_total, 64);
SIZE_IS(dcmi_media_resource, 56);
SIZE_IS(dcmi_soc_total_resource, 360);
OFFSET_IS(dcmi_soc_total_resource, computing, 208);
SIZE_IS(dcmi_soc_free_resource, 224);
OFFSET_IS(dcmi_soc_free_resource, computing, 72);
OFFSET_IS(dcmi_soc_free_resource, media, 168);
SIZE_IS(dcmi_vdev_query_info, 256);
OFFSET_IS(dcmi_vdev_query_info, container_id, 32);
OFFSET_IS(dcmi_vdev_query_info, computing, 104);
SIZE_IS(dcmi_vdev_query_stru, 264);
OFFSET_IS(dcmi_vdev_query_stru, query_info, 8);
SIZE_IS(dcmi_create_vdev_res_stru, 104);
OFFSET_IS(dcmi_create_vdev_res_stru, template_name, 8);
SIZE_IS(dcmi_create_vdev_out, 52);
OFFSET_IS(dcmi_create_vdev_out, vfg_id, 16);
SIZE_IS(dcmi_dms_fault_event, 352);
SIZE_IS(dcmi_event, 360);
OFFSET_IS(dcmi_event, event_t, 8);
SIZE_IS(dcmi_event_filter, 48);
_Static_assert(_Alignof(struct dcmi_event_filter) == 8, "passed by value: its alignment counts");

#endif
