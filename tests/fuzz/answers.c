// A libdcmi.so whose answers are bytes that a test feeds: any answer of a broken driver.
//
// Each answer begins with a return code. While bytes are left, one byte chooses how the next number
// is made, so that small, extreme and arbitrary ones are all likely. After the bytes all answers
// are zeros: success, and nothing there.

#include <stddef.h>
#include <string.h>

typedef unsigned char byte;

static const byte *fed;
static size_t left;

static byte next(void) {
    if (left == 0) return 0;
    left--;
    return *fed++;
}

static void fill(void *out, size_t size) {
    size_t count = size < left ? size : left;
    memcpy(out, fed, count);
    fed += count;
    left -= count;
}

static const int edges[] = {-1, 2147483647, -2147483647 - 1, 64, 65, 128, 129, 255, 256, 0x7FFD,
                            0x8000, 0xFFFF, 1 << 20, 16, 17, 9};

static int number(void) {
    int any = 0;
    switch (next() % 4) {
    case 0: return next() % 4;
    case 1: return edges[next() % (sizeof edges / sizeof *edges)];
    case 2: fill(&any, sizeof any); return any;
    default: return next();
    }
}

static const int codes[] = {-8001, -8002, -8006, -8007, -8008, -8012, -8013, -8020, -8255, -99999, 1};

static int code(void) {
    byte kind = next();
    return kind < 208 ? 0 : kind < 250 ? codes[kind % (sizeof codes / sizeof *codes)] : number();
}

static const char *const names[] = {"910B4", "Ascend910", "310P3", "310B", "Ascend950", "9392", "1.0"};

static void text(char *out, size_t size) {
    byte kind = next();
    if (kind % 2) fill(out, size);
    else strncpy(out, names[kind / 2 % (sizeof names / sizeof *names)], size);
}

static void numbers(int *out, size_t count) {
    for (size_t i = 0; i < count && left > 0; i++) out[i] = number();
}

// A list of numbers, as long as its count says if that fits, otherwise two.
static void list(int *count, int *out, int size) {
    *count = number();
    numbers(out, *count >= 0 && *count <= size ? (size_t)*count : 2);
}

void answers_feed(const byte *bytes, size_t size) {
    fed = bytes;
    left = size;
}

#define CHIP int card, int device
#define ANSWER(name, arguments, body)                                                              \
    int name arguments {                                                                           \
        int status = code();                                                                       \
        body;                                                                                      \
        return status;                                                                             \
    }
#define INT(name, arguments) ANSWER(name, arguments, *out = number())
// Longer than today's header declares, as in newer libraries.
#define BYTES(name, arguments, size) ANSWER(name, arguments, fill(out, size))

ANSWER(dcmi_init, (void), )
ANSWER(dcmi_get_card_list, (int *count, int *cards, int size), list(count, cards, size))
ANSWER(dcmi_get_device_id_in_card, (int card, int *count, int *mcu, int *cpu), *count = number();
       *mcu = number(); *cpu = number())
INT(dcmi_get_device_type, (CHIP, int *out))
INT(dcmi_get_device_logic_id, (int *out, CHIP))
INT(dcmi_get_device_phyid_from_logicid, (unsigned logic, int *out))
ANSWER(dcmi_get_device_chip_info, (CHIP, char *out), text(out + 32, 32); fill(out + 96, 4))
ANSWER(dcmi_get_device_chip_info_v2, (CHIP, char *out), text(out + 32, 32);
       *(int *)(out + 96) = number(); text(out + 100, 32); fill(out + 132, 32))
ANSWER(dcmi_get_product_type, (CHIP, char *out, int size), text(out, (size_t)size))
ANSWER(dcmi_get_device_board_info, (CHIP, int *out), numbers(out, 4))
ANSWER(dcmi_get_device_pcie_info, (CHIP, int *out), numbers(out, 7); fill(out + 7, 64))
ANSWER(dcmi_get_device_pcie_info_v2, (CHIP, int *out), numbers(out, 8); fill(out + 8, 64))
BYTES(dcmi_get_device_die_v2, (CHIP, int kind, void *out), 20)
ANSWER(dcmi_get_driver_version, (char *out, unsigned size), text(out, size))
INT(dcmi_get_topo_info_by_device_id, (CHIP, int card2, int device2, int *out))
ANSWER(dcmi_get_device_info, (CHIP, int main, unsigned sub, int *out, unsigned *size), numbers(out, 12);
       *size = (unsigned)number())
BYTES(dcmi_get_device_hbm_info, (CHIP, void *out), 32)
BYTES(dcmi_get_device_memory_info_v2, (CHIP, void *out), 32)
BYTES(dcmi_get_device_memory_info_v3, (CHIP, void *out), 128)
INT(dcmi_get_device_temperature, (CHIP, int *out))
INT(dcmi_get_device_power_info, (CHIP, int *out))
INT(dcmi_mcu_get_power_info, (int card, int *out))
INT(dcmi_get_device_utilization_rate, (CHIP, int type, int *out))
INT(dcmi_get_device_health, (CHIP, int *out))
ANSWER(dcmi_get_device_errorcode_v2, (CHIP, int *count, int *out, unsigned size),
       list(count, out, (int)size))
ANSWER(dcmi_get_device_errorcode_string, (CHIP, unsigned number_, char *out, int size),
       text(out, (size_t)size))
INT(dcmi_get_device_network_health, (CHIP, int *out))
ANSWER(dcmi_get_device_ip, (CHIP, int port, int id, void *ip, void *mask), fill(ip, 20);
       fill(mask, 20))
BYTES(dcmi_get_device_gateway, (CHIP, int port, int id, void *out), 20)
BYTES(dcmi_get_device_mac, (CHIP, int id, void *out, unsigned size), size)
ANSWER(dcmi_get_device_resource_info, (CHIP, void *out, int *count), *count = number(); fill(out, 64))
INT(dcmi_get_device_boot_status, (CHIP, int *out))
INT(dcmi_get_multi_die_policy, (int *out))
INT(dcmi_get_device_share_enable, (CHIP, int *out))

#define DEV int id

ANSWER(dcmiv2_init, (void), )
ANSWER(dcmiv2_get_device_list, (int *ids, int *count, int size), list(count, ids, size))
INT(dcmiv2_get_device_type, (DEV, int *out))
INT(dcmiv2_get_chip_phy_id_by_dev_id, (DEV, int *out))
ANSWER(dcmiv2_get_device_chip_info, (DEV, char *out), text(out + 32, 32);
       *(int *)(out + 96) = number(); text(out + 100, 32); fill(out + 132, 32))
ANSWER(dcmiv2_get_device_board_info, (DEV, int *out), numbers(out, 4))
ANSWER(dcmiv2_get_device_pcie_info, (DEV, int *out), numbers(out, 8); fill(out + 8, 64))
BYTES(dcmiv2_get_device_die_id, (DEV, int kind, void *out), 20)
ANSWER(dcmiv2_get_driver_version, (char *out, unsigned size), text(out, size))
INT(dcmiv2_get_topo_info_by_device_id, (DEV, int other, int *out))
ANSWER(dcmiv2_get_device_info, (DEV, int main, unsigned sub, int *out, unsigned *size),
       numbers(out, 12); *size = (unsigned)number())
BYTES(dcmiv2_get_device_hbm_info, (DEV, void *out), 64)
INT(dcmiv2_get_device_share_enable, (DEV, int *out))

struct filter {
    unsigned long long flag;
    unsigned id;
    byte rest[36];
};

static void (*told)(void *event);

int dcmi_subscribe_fault_event(CHIP, struct filter filter, void (*callback)(void *event)) {
    (void)card, (void)device, (void)filter;
    told = callback;
    return code();
}

// Calls back with an event of the bytes that are left.
void answers_event(void) {
    struct { int type; byte rest[512]; } event = {0};
    event.type = next() % 2;
    fill(event.rest + 4, sizeof event.rest - 4);
    told(&event);
}
