/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Counting another process, and reading its counters after its end: how perfex does it.
 *
 *	other_process COMMAND [ARGUMENT]...
 *
 * The child makes counters for itself, passes the descriptor over a socket, starts them and executes the command. The
 * state lives as long as its descriptor, so its final counts are there when the command is gone.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vperfctr.h"

union ancillary {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int))];
};

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static void message(struct msghdr *msg, struct iovec *data, char *byte, union ancillary *space)
{
	memset(msg, 0, sizeof(*msg));
	memset(space, 0, sizeof(*space));
	data->iov_base = byte;
	data->iov_len = 1;
	msg->msg_iov = data;
	msg->msg_iovlen = 1;
	msg->msg_control = space->bytes;
	msg->msg_controllen = sizeof(space->bytes);
}

static void send_fd(int socket, int fd)
{
	struct msghdr msg;
	struct iovec data;
	union ancillary space;
	struct cmsghdr *rights;
	char byte = 0;

	message(&msg, &data, &byte, &space);
	rights = CMSG_FIRSTHDR(&msg);
	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
	if (sendmsg(socket, &msg, 0) < 0)
		fail("sendmsg");
}

static int receive_fd(int socket)
{
	struct msghdr msg;
	struct iovec data;
	union ancillary space;
	struct cmsghdr *rights;
	char byte;
	int fd;

	message(&msg, &data, &byte, &space);
	if (recvmsg(socket, &msg, MSG_CMSG_CLOEXEC) < 0)
		fail("recvmsg");
	rights = CMSG_FIRSTHDR(&msg);
	if (!rights)
		return -1;
	memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
	return fd;
}

static void child(int socket, char **command)
{
	struct vperfctr_control control;
	struct vperfctr *self = vperfctr_open(0, 1);

	if (!self)
		fail("vperfctr_open");
	memset(&control, 0, sizeof(control));
	control.cpu_control.tsc_on = 1;
	control.cpu_control.nractrs = 1;
	/* AMD: instructions in user mode. */
	control.cpu_control.evntsel[0] = 0x004100C0;
	send_fd(socket, vperfctr_fd(self));
	if (vperfctr_control(self, &control))
		fail("vperfctr_control");
	execvp(command[0], command);
	fail(command[0]);
}

int main(int argc, char **argv)
{
	struct perfctr_sum_ctrs sum;
	struct vperfctr *state;
	int sockets[2], status, fd;
	pid_t pid;

	if (argc < 2) {
		fprintf(stderr, "usage: other_process COMMAND [ARGUMENT]...\n");
		return 2;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
		fail("socketpair");
	pid = fork();
	if (pid < 0)
		fail("fork");
	if (pid == 0) {
		close(sockets[0]);
		child(sockets[1], argv + 1);
	}
	close(sockets[1]);
	fd = receive_fd(sockets[0]);
	if (waitpid(pid, &status, 0) < 0)
		fail("waitpid");
	if (fd < 0)
		return 1;
	state = vperfctr_from_fd(fd);
	if (!state)
		fail("vperfctr_from_fd");
	if (vperfctr_read(state, &sum, NULL))
		fail("vperfctr_read");
	printf("%" PRIu64 " events, %" PRIu64 " TSC cycles\n", sum.pmc[0], sum.tsc);
	vperfctr_close(state);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
