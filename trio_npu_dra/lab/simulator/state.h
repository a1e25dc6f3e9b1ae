/* The board's state file: every process that loads the simulated library reads it, and control.py
 * changes it. The binary layout is fixed, with native byte order and natural alignment. layout.py
 * reads the structs below, one member a line, and a test lets the compiler check its offsets.
 *
 * Readers and writers hold flock() on the file (shared or exclusive), so no reader sees half a
 * change, a killed writer leaves no lock behind, and it works through a read-only bind mount.
 */
#ifndef SIMULATOR_STATE_H
#define SIMULATOR_STATE_H

#include <stdint.h>

#define BOARD_FILE "board.state"
#define BOARD_DEV_LINK "npu_board.state" /* the same file, where the driver's folder is read-only */
#define BOARD_MAGIC "NPUBOARD"
#define BOARD_VERSION 6u
#define BOARD_DEVICES 64
#define BOARD_FAULTS 128
#define BOARD_PROCESSES 64
#define BOARD_RULES 64
#define BOARD_EVENTS 256
#define BOARD_UTILIZATIONS 16
#define BOARD_VNPUS 16 /* of one chip */
#define NONE 0xFFFFFFFFu /* a fact this board does not have */

enum presence { PRESENT = 0, GONE = 1, BOOTING = 2, SILENT = 3 };

struct board_fault {
    uint32_t code;
    uint32_t severity;
    uint64_t raised_ms; /* since the epoch */
};

struct board_process {
    int32_t pid;
    uint64_t memory; /* bytes */
};

/* Makes calls of one function fail, wait, hang or succeed; function "*" is every function. */
struct board_rule {
    char function[64];
    int32_t physical_id; /* -1: any device, also calls without one */
    int32_t code;        /* 0: the true answer */
    uint32_t delay_ms;
    uint32_t active;
    uint32_t hang;
    uint32_t answers;      /* the chip answers while it boots; the fields above do not count */
    uint32_t until_change; /* ends when the chip's presence changes */
};

struct board_vnpu {
    uint32_t id;
    uint32_t in_use; /* a container has it open */
    char template_name[32];
};

struct board_device {
    uint32_t physical_id;
    uint32_t card_id;
    uint32_t device_id;
    uint32_t slot_id;
    uint32_t pci_domain; /* NONE: on the unified bus (UB), not on PCI */
    uint32_t pci_bus;
    uint32_t pci_device;
    uint32_t pci_function;
    uint32_t die[5];
    uint32_t aicore_count;
    uint32_t sdid;
    uint32_t ip_version; /* of the RoCE port's address, 4 or 6; 0: it has none */
    uint8_t ip[16];
    uint8_t ip_mask[16]; /* of IPv6 the first byte is the length of the prefix */
    uint8_t gateway[16];
    uint8_t mac[6]; /* of the RoCE port */
    char cpu_list[64]; /* empty: the call is not supported */
    char serial_number[64];

    uint32_t presence;
    uint32_t keeps_number; /* the kernel still counts the gone chip */
    uint32_t health; /* without the faults: the worst of both is reported */
    uint32_t forced_health; /* reported whatever the faults; NONE: not forced */
    uint32_t network_health; /* NONE: not supported */
    uint32_t link_up;        /* of the RoCE port; NONE: the chip has none */
    uint32_t hccs_status;    /* NONE: not supported */
    uint32_t share_enable;
    int32_t temperature; /* degrees C */
    int32_t power;       /* 0.1 W; of the whole card where power_by_mcu */
    uint32_t utilization[BOARD_UTILIZATIONS]; /* percent, by DCMI's type; NONE: not supported */
    uint64_t hbm_size;   /* MB; 0: no HBM on this chip */
    uint64_t hbm_used;   /* MB */
    uint32_t hbm_frequency; /* MHz */
    int32_t hbm_temperature;
    uint64_t ddr_size;   /* MB; 0: no DDR on this chip */
    uint64_t ddr_available; /* MB */
    uint32_t ddr_frequency; /* MHz */
    uint32_t ecc_single;
    uint32_t ecc_double;
    uint32_t process_count;
    struct board_process processes[BOARD_PROCESSES];
    uint32_t fault_count;
    struct board_fault faults[BOARD_FAULTS];
    uint32_t vnpu_count; /* how many vNPUs the chip is split into */
    struct board_vnpu vnpus[BOARD_VNPUS];
};

struct board_event {
    uint64_t raised_ms; /* since the epoch */
    uint32_t physical_id;
    uint32_t code;
    uint32_t severity;  /* 0 warning .. 3 critical */
    uint32_t assertion; /* 0 recovery, 1 occurrence, 2 notice */
    uint32_t node_type;
    int32_t serial;
    char name[200];
    char additional[32];
};

/* The facts of the whole board; small enough for every call to copy them. */
struct board_facts {
    uint8_t magic[8];
    uint32_t version;
    uint32_t size; /* of the whole file */
    uint32_t device_count;
    uint32_t generation; /* of the calls that serve these chips: 1 dcmi_*, 2 dcmiv2_* */
    uint32_t has_mcu;
    uint32_t has_topology; /* 910B and A3, with the other calls that only these two answer */
    uint32_t power_by_mcu; /* the card's MCU reports the power, not the chips */
    uint32_t ecc_kinds;    /* bit N: ECC of dcmi_device_type N is answered */
    uint32_t ai_cpus;      /* per chip */
    uint32_t vnpu_details; /* vNPU queries report memory and AI CPUs (all but 910A) */
    uint32_t die_type;         /* the one dcmi_die_type that is answered */
    uint32_t multi_die_policy; /* NONE: not supported */
    uint32_t vnpu_mode;        /* 0: vNPUs are for containers, 1: for virtual machines */
    uint32_t vnpu_recover;     /* vNPUs come back after a reboot */
    uint32_t unprivileged;     /* calls that change something are refused */
    uint32_t board_id;
    uint32_t pcb_id;
    uint32_t bom_id;
    uint32_t mainboard_id; /* NONE: not supported */
    uint32_t pci_vendor;
    uint32_t pci_device;
    uint32_t pci_subvendor;
    uint32_t pci_subdevice;
    uint32_t super_pod_size; /* NONE: no super pod */
    uint32_t super_pod_id;
    uint32_t super_pod_type;
    uint32_t server_index;
    uint32_t chassis_id;
    char driver_version[64];
    char dcmi_version[64];
    char product_type[64]; /* empty: not supported */
    char chip_type[32];
    char chip_name[32];
    char chip_version[32];
    char npu_name[32];
    char elabel_product[64];
    char elabel_model[64];
    char elabel_manufacturer[64];
    char elabel_date[64];
    char dev_root[1024]; /* used instead of /dev where it exists */
};

struct board {
    struct board_facts facts;
    uint64_t next_event; /* events[n % BOARD_EVENTS] for n < next_event */
    uint32_t events_lost;       /* overwritten before a reader read them */
    uint32_t calls_beside_init; /* the vendor's unlocked globals do not survive them */
    uint8_t topology[BOARD_DEVICES * BOARD_DEVICES]; /* by index into devices */
    struct board_rule rules[BOARD_RULES];
    struct board_device devices[BOARD_DEVICES];
    struct board_event events[BOARD_EVENTS];
};

#endif
