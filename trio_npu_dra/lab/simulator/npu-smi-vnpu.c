/* npu-smi for an administrator who splits chips by hand: create-vnpu, destroy-vnpu, info-vnpu. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "smi.h"

static const char usage[] =
    "usage: npu-smi set -t create-vnpu -i <card> -c <chip> -f <template> [-v <vnpu>]\n"
    "       npu-smi set -t destroy-vnpu -i <card> -c <chip> -v <vnpu>\n"
    "       npu-smi info -t info-vnpu -i <card> -c <chip>\n";

static struct {
    int (*init)(void);
    int (*create)(int, int, struct dcmi_create_vdev_res_stru *, struct dcmi_create_vdev_out *);
    int (*destroy)(int, int, unsigned);
    int (*info)(int, int, int, unsigned, void *, unsigned *);
} dcmi;

static void load_dcmi(void)
{
    void *library = smi_library();
    smi_bind(library, "dcmi_init", &dcmi.init);
    smi_bind(library, "dcmi_create_vdevice", &dcmi.create);
    smi_bind(library, "dcmi_set_destroy_vdevice", &dcmi.destroy);
    smi_bind(library, "dcmi_get_device_info", &dcmi.info);
}

struct request {
    const char *type;
    int card;
    int chip;
    const char *template_name;
    unsigned vnpu;
};

/* Not strtoul: compiled with a new C library it would need one as new in every container. */
static unsigned number_of(const char *text)
{
    unsigned number = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        number = 10 * number + (unsigned)(*text - '0');
    }
    return number;
}

static bool read_request(int argc, char **argv, struct request *request)
{
    int option;
    *request = (struct request){.type = "", .card = -1, .template_name = "", .vnpu = VDEV_AUTO};
    while ((option = getopt(argc, argv, "t:i:c:f:v:")) != -1) {
        switch (option) {
        case 't': request->type = optarg; break;
        case 'i': request->card = (int)number_of(optarg); break;
        case 'c': request->chip = (int)number_of(optarg); break;
        case 'f': request->template_name = optarg; break;
        case 'v': request->vnpu = number_of(optarg); break;
        default: return false;
        }
    }
    return request->card >= 0;
}

static int report(const char *what, int code)
{
    if (code != DCMI_OK) {
        printf("%s failed. ret is %d\n", what, code);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

static int create(const struct request *request)
{
    struct dcmi_create_vdev_out out;
    struct dcmi_create_vdev_res_stru wanted = {.vdev_id = request->vnpu, .vfg_id = VDEV_AUTO};
    snprintf(wanted.template_name, sizeof wanted.template_name, "%s", request->template_name);
    int code = dcmi.create(request->card, request->chip, &wanted, &out);
    if (code == DCMI_OK) {
        printf("\tStatus         : OK\n\tVnpu ID        : %u\n", out.vdev_id);
    }
    return report("create-vnpu", code);
}

static int destroy(const struct request *request)
{
    int code = dcmi.destroy(request->card, request->chip, request->vnpu);
    if (code == DCMI_OK) {
        puts("\tStatus         : OK");
    }
    return report("destroy-vnpu", code);
}

static int show(const struct request *request)
{
    struct dcmi_soc_total_resource total;
    struct dcmi_soc_free_resource rest;
    unsigned size = sizeof total;
    int code = dcmi.info(request->card, request->chip, MAIN_VDEV_MNG, SUB_TOTAL_RESOURCE, &total,
                         &size);
    size = sizeof rest;
    if (code == DCMI_OK) {
        code = dcmi.info(request->card, request->chip, MAIN_VDEV_MNG, SUB_FREE_RESOURCE, &rest,
                         &size);
    }
    if (code != DCMI_OK) {
        return report("info-vnpu", code);
    }
    printf("Free/Total: AICORE %g/%g, Memory(MB) %llu/%llu, AICPU %u/%u\n", rest.computing.aic,
           total.computing.aic, rest.computing.memory_size, total.computing.memory_size,
           rest.computing.device_aicpu, total.computing.device_aicpu);
    for (unsigned i = 0; i < total.vdev_num; i++) {
        struct dcmi_vdev_query_stru query = {.vdev_id = total.vdev_id[i]};
        size = sizeof query;
        if (dcmi.info(request->card, request->chip, MAIN_VDEV_MNG, SUB_VDEV_RESOURCE, &query,
                      &size) == DCMI_OK) {
            printf("Vnpu ID %u: %s, in use %u\n", total.vdev_id[i], query.query_info.name,
                   query.query_info.is_container_used);
        }
    }
    return EXIT_SUCCESS;
}

int smi_manage_vnpus(int argc, char **argv)
{
    static const struct {
        const char *verb;
        const char *type;
        int (*act)(const struct request *);
    } acts[] = {
        {"set", "create-vnpu", create},
        {"set", "destroy-vnpu", destroy},
        {"info", "info-vnpu", show},
    };
    struct request request;
    if (read_request(argc - 1, argv + 1, &request)) {
        for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++) {
            if (strcmp(argv[1], acts[i].verb) == 0 && strcmp(request.type, acts[i].type) == 0) {
                load_dcmi();
                smi_check_init(dcmi.init());
                return acts[i].act(&request);
            }
        }
    }
    fputs(usage, stderr);
    return EXIT_FAILURE;
}
