/*
 * A name server and broker that hands out the same messages for ever, so that a reader is the slower
 * side and what is measured is the reader.
 *
 *   pull_server QUEUES ROWS MESSAGES_PER_PULL RECORD_BYTES FILE
 *
 * FILE holds one block of MESSAGES_PER_PULL records for each queue, made by pull_server.py. Listens
 * on a free port of 127.0.0.1, prints "ready PORT", and ends when its standard input ends. Each
 * connection has a thread and a block of its own, into which only the queue offsets of an answer
 * are written: nothing is copied but by the kernel.
 */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { READ_AT_ONCE = 256 * 1024, OFFSET_AT = 20 };
enum { PULL = 11, MAX_OFFSET = 30, MIN_OFFSET = 31, ROUTE = 105, ONEWAY = 2 };
enum { SUCCESS = 0, PULL_NOT_FOUND = 19 };

static long queues, rows, most, record;
static uint8_t *stock;
static char route[512];

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put32(uint8_t *p, uint32_t v) {
    p[0] = v >> 24, p[1] = v >> 16, p[2] = v >> 8, p[3] = v;
}

/* A number of a request header, of either kind: what follows the first digit after its name. */
static long number(const uint8_t *header, size_t size, const char *name) {
    const uint8_t *p = memmem(header, size, name, strlen(name)), *end = header + size;
    if (p == NULL) return 0;
    for (p += strlen(name); p < end && (*p < '0' || *p > '9'); p++)
        ;
    long value = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++) value = value * 10 + (*p - '0');
    return value;
}

/* 0 when the connection is over. */
static int answer(int fd, int code, long opaque, const char *ext, void *body, size_t size) {
    uint8_t head[1024];
    int n = sprintf((char *)head + 8,
                    "{\"code\":%d,\"extFields\":{%s},\"flag\":1,\"language\":\"JAVA\",\"opaque\":%ld,"
                    "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":477}",
                    code, ext, opaque);
    put32(head, (uint32_t)(4 + (size_t)n + size));
    put32(head + 4, (uint32_t)n);
    struct iovec parts[2] = {{head, 8 + (size_t)n}, {body, size}};
    while (parts[0].iov_len + parts[1].iov_len > 0) {
        ssize_t sent = writev(fd, parts, 2);
        if (sent <= 0) return 0;
        for (int i = 0; i < 2; i++) {
            size_t part = (size_t)sent < parts[i].iov_len ? (size_t)sent : parts[i].iov_len;
            parts[i].iov_base = (uint8_t *)parts[i].iov_base + part;
            parts[i].iov_len -= part;
            sent -= (ssize_t)part;
        }
    }
    return 1;
}

static int answer_pull(int fd, long opaque, const uint8_t *header, size_t size, uint8_t *blocks) {
    long queue = number(header, size, "queueId"), offset = number(header, size, "queueOffset");
    long count = number(header, size, "maxMsgNums");
    char ext[256];
    if (count > most) count = most;
    if (count > rows - offset) count = rows - offset;
    if (count < 0 || queue < 0 || queue >= queues) count = 0;
    sprintf(ext,
            "\"nextBeginOffset\":\"%ld\",\"minOffset\":\"0\",\"maxOffset\":\"%ld\","
            "\"suggestWhichBrokerId\":\"0\"",
            offset + count, rows);
    uint8_t *block = blocks + queue * most * record;
    for (long i = 0; i < count; i++) {
        uint64_t place = __builtin_bswap64((uint64_t)(offset + i));
        memcpy(block + i * record + OFFSET_AT, &place, 8);
    }
    size_t bytes = (size_t)(count * record);
    return answer(fd, count ? SUCCESS : PULL_NOT_FOUND, opaque, ext, block, bytes);
}

static int serve(int fd, const uint8_t *frame, size_t size, uint8_t *blocks) {
    uint32_t mark = get32(frame);
    size_t length = mark & 0xFFFFFF;
    const uint8_t *header = frame + 4;
    if (length + 4 > size || length < 21) return 0;
    int is_binary = mark >> 24 == 1;
    long code = is_binary ? header[0] << 8 | header[1] : number(header, length, "\"code\"");
    long opaque = is_binary ? (long)get32(header + 5) : number(header, length, "\"opaque\"");
    long flag = is_binary ? (long)get32(header + 9) : number(header, length, "\"flag\"");
    char ext[64] = "";
    if (flag & ONEWAY) return 1;
    if (code == PULL) return answer_pull(fd, opaque, header, length, blocks);
    if (code == ROUTE) return answer(fd, SUCCESS, opaque, "", route, strlen(route));
    if (code == MAX_OFFSET || code == MIN_OFFSET) {
        sprintf(ext, "\"offset\":\"%ld\"", code == MAX_OFFSET ? rows : 0L);
        return answer(fd, SUCCESS, opaque, ext, NULL, 0);
    }
    return answer(fd, SUCCESS, opaque, "", "{\"topicList\":[\"bench\"]}", 23);
}

static void *attend(void *argument) {
    int fd = (int)(intptr_t)argument;
    size_t all = (size_t)(queues * most * record), start = 0, end = 0;
    uint8_t *blocks = malloc(all), *in = malloc(READ_AT_ONCE);
    if (blocks == NULL || in == NULL) die("malloc");
    memcpy(blocks, stock, all);
    for (;;) {
        size_t size = end - start >= 4 ? get32(in + start) : 0;
        if (end - start >= 8 && end - start >= size + 4) {
            if (!serve(fd, in + start + 4, size, blocks)) break;
            start += size + 4;
            continue;
        }
        if (size + 4 > READ_AT_ONCE) break;
        memmove(in, in + start, end - start);
        end -= start, start = 0;
        ssize_t n = read(fd, in + end, READ_AT_ONCE - end);
        if (n <= 0) break;
        end += (size_t)n;
    }
    close(fd);
    free(blocks);
    free(in);
    return NULL;
}

static void *accept_all(void *argument) {
    for (;;) {
        int fd = accept((int)(intptr_t)argument, NULL, NULL), one = 1;
        pthread_t thread;
        if (fd < 0) continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (pthread_create(&thread, NULL, attend, (void *)(intptr_t)fd)) die("pthread_create");
        pthread_detach(thread);
    }
    return NULL;
}

static void load(const char *path) {
    size_t all = (size_t)(queues * most * record);
    FILE *file = fopen(path, "rb");
    stock = malloc(all);
    if (file == NULL || stock == NULL || fread(stock, 1, all, file) != all) die(path);
    fclose(file);
}

static int listen_on_loopback(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 128)) die("listen");
    getsockname(fd, (struct sockaddr *)&address, &size);
    int port = ntohs(address.sin_port);
    sprintf(route,
            "{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"127.0.0.1:%d\"},\"brokerName\":\"b\","
            "\"cluster\":\"c\"}],\"filterServerTable\":{},\"queueDatas\":[{\"brokerName\":\"b\","
            "\"perm\":6,\"readQueueNums\":%ld,\"topicSysFlag\":0,\"writeQueueNums\":%ld}]}",
            port, queues, queues);
    printf("ready %d\n", port);
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "pull_server QUEUES ROWS MESSAGES_PER_PULL RECORD_BYTES FILE\n");
        return 2;
    }
    queues = atol(argv[1]), rows = atol(argv[2]), most = atol(argv[3]), record = atol(argv[4]);
    /* A client that leaves in the middle of an answer ends its connection, not the server. */
    signal(SIGPIPE, SIG_IGN);
    load(argv[5]);
    pthread_t thread;
    char rest[64];
    if (pthread_create(&thread, NULL, accept_all, (void *)(intptr_t)listen_on_loopback()))
        die("pthread_create");
    while (read(0, rest, sizeof rest) > 0)
        ;
    return 0;
}
