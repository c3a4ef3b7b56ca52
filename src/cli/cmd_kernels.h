/* cmd_kernels.h - the subcommand `metrale kernels`. */
#ifndef METRALE_CLI_CMD_KERNELS_H
#define METRALE_CLI_CMD_KERNELS_H

/* argv[0] is "kernels". Returns the exit status: 0, 1 (check found faults), 2 (bad arguments or input). */
int cmd_kernels(int argc, char **argv);
#endif
