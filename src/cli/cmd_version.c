/* cmd_version.c - `metrale version`: what this binary is and holds. */
#include "cli/cli.h"
#include "cli/loader.h"
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>

static error_t parse(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    if (key != 'j')
        return ARGP_ERR_UNKNOWN;
    *(bool *)state->input = true;
    return 0;
}

int cmd_version(int argc, char **argv)
{
    static const struct argp_option options[] = {{"json", 'j', 0, 0, "print a JSON object", 0}, {0}};
    static const struct argp parser = {
        options, parse, "", "Version, hardware classes and kernel targets of this binary.", NULL, NULL, NULL};
    const KernelRegistry *r = &metrale_registry;
    bool json = false;

    argp_parse(&parser, argc, argv, 0, NULL, &json);
    if (!json) {
        printf("metrale %s: %zu kernel targets\n", METRALE_VERSION, r->n_targets);
        for (size_t i = 0; i < r->n_targets; i++)
            printf("  %-28s %-10s %.12s%s\n", r->targets[i].name, r->targets[i].arch, r->targets[i].hash,
                   loader_class_runs(&r->targets[i], NULL) ? "  runs here" : "");
        if (r->left_out)
            printf("%s\n", r->left_out);
        return 0;
    }
    printf("{\"version\": \"%s\", \"targets\": [", METRALE_VERSION);
    for (size_t i = 0; i < r->n_targets; i++)
        printf("%s{\"name\": \"%s\", \"arch\": \"%s\", \"hash\": \"%s\"}", i ? ", " : "", r->targets[i].name,
               r->targets[i].arch, r->targets[i].hash);
    printf("]}\n");
    return 0;
}
