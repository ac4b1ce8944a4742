/*
 * A name server and brokers that store nothing and answer at once, so that a client is the slower
 * side and what is measured is the client.
 *
 *   acker BROKERS QUEUES json|binary
 *
 * Listens on free ports of 127.0.0.1, one for each broker, prints "ready PORT PORT ...", and ends
 * when its standard input ends. Every port also answers as a name server. Answers look like those
 * of Apache RocketMQ 5.3: JSON headers unless told otherwise, with the queue that was asked for,
 * a rising offset, and for a batch one offset id for each message.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_BROKERS = 128, READ_AT_ONCE = 256 * 1024, MAX_FRAME = 16 * 1024 * 1024 };

struct buffer {
    uint8_t *data;
    size_t start, end, size;
};

struct connection {
    int fd;
    int is_listener;
    struct buffer in, out;
};

static int poller, brokers, queues, is_binary;
static int ports[MAX_BROKERS];
static unsigned long long stored;
static char *route;
static size_t route_size;

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

/* Room for `more` bytes behind what is held. */
static uint8_t *room(struct buffer *b, size_t more) {
    if (b->start == b->end) b->start = b->end = 0;
    if (b->size - b->end < more && b->start > 0) {
        memmove(b->data, b->data + b->start, b->end - b->start);
        b->end -= b->start, b->start = 0;
    }
    if (b->size - b->end < more) {
        b->size = (b->end + more) * 2;
        b->data = realloc(b->data, b->size);
        if (b->data == NULL) die("realloc");
    }
    return b->data + b->end;
}

static void add(struct buffer *b, const void *data, size_t size) {
    memcpy(room(b, size), data, size);
    b->end += size;
}

/* One field of a binary header's ext block; its length, or 0 if it is not there. */
static size_t field(const uint8_t *p, const uint8_t *end, char name, const uint8_t **value) {
    while (end - p > 2) {
        size_t key = (size_t)p[0] << 8 | p[1];
        const uint8_t *text = p + 2;
        p = text + key;
        if (end - p < 4) return 0;
        size_t size = get32(p);
        p += 4;
        if ((size_t)(end - p) < size) return 0;
        if (key == 1 && text[0] == (uint8_t)name) {
            *value = p;
            return size;
        }
        p += size;
    }
    return 0;
}

static size_t id_text(char *text) {
    return (size_t)sprintf(text, "7F00000100002A9F%016llX", stored++ * 300);
}

/* The offset ids of a batch, joined by commas; one id for a single message. */
static char *ids(const uint8_t *body, size_t size, int is_batch, unsigned *count, size_t *length) {
    static char *text;
    static size_t held;
    *count = 0, *length = 0;
    while (*count == 0 || (is_batch && size >= 4)) {
        if (*length + 64 > held) {
            held = (*length + 64) * 2;
            text = realloc(text, held);
            if (text == NULL) die("realloc");
        }
        if (*count) text[(*length)++] = ',';
        *length += id_text(text + *length);
        ++*count;
        size_t item = is_batch ? get32(body) : size;
        if (item < 4 || item > size) break;
        body += item, size -= item;
    }
    return text;
}

static void answer_json(struct buffer *out, int32_t opaque, const char *ext, size_t ext_size,
                        const void *body, size_t body_size) {
    char tail[128];
    int n = sprintf(tail,
                    "\"flag\":1,\"language\":\"JAVA\",\"opaque\":%d,"
                    "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":477}",
                    opaque);
    static const char head[] = "{\"code\":0,\"extFields\":{";
    size_t header = sizeof head - 1 + ext_size + 2 + (size_t)n;
    uint8_t start[8];
    put32(start, (uint32_t)(4 + header + body_size));
    put32(start + 4, (uint32_t)header);
    add(out, start, 8);
    add(out, head, sizeof head - 1);
    add(out, ext, ext_size);
    add(out, "},", 2);
    add(out, tail, (size_t)n);
    add(out, body, body_size);
}

static size_t put_field(uint8_t *p, const char *name, const char *value, size_t size) {
    size_t key = strlen(name);
    p[0] = key >> 8, p[1] = key;
    memcpy(p + 2, name, key);
    put32(p + 2 + key, (uint32_t)size);
    memcpy(p + 6 + key, value, size);
    return 6 + key + size;
}

static void answer_binary(struct buffer *out, int32_t opaque, const uint8_t *ext, size_t ext_size,
                          const void *body, size_t body_size) {
    uint8_t start[29] = {0};
    size_t header = 21 + ext_size;
    put32(start, (uint32_t)(4 + header + body_size));
    put32(start + 4, (uint32_t)(1u << 24 | header));
    start[11] = 477 >> 8, start[12] = 477 & 0xFF; /* code 0, language 0 (Java), version */
    put32(start + 13, (uint32_t)opaque);
    put32(start + 17, 1);
    put32(start + 25, (uint32_t)ext_size);
    add(out, start, 29);
    add(out, ext, ext_size);
    add(out, body, body_size);
}

static void answer(struct buffer *out, int32_t opaque, const void *body, size_t size) {
    if (is_binary)
        answer_binary(out, opaque, (const uint8_t *)"", 0, body, size);
    else
        answer_json(out, opaque, "", 0, body, size);
}

static void answer_send(struct buffer *out, int32_t opaque, const char *queue, size_t queue_size,
                        const uint8_t *body, size_t size, int is_batch) {
    static unsigned long long offset;
    static uint8_t *ext;
    static size_t held;
    unsigned count;
    size_t ids_size, n;
    char *text = ids(body, size, is_batch, &count, &ids_size);
    if (held < ids_size + 512) {
        held = (ids_size + 512) * 2;
        ext = realloc(ext, held);
        if (ext == NULL) die("realloc");
    }
    if (is_binary) {
        char number[24];
        int digits = sprintf(number, "%llu", offset);
        n = put_field(ext, "queueId", queue, queue_size);
        n += put_field(ext + n, "TRACE_ON", "true", 4);
        n += put_field(ext + n, "MSG_REGION", "DefaultRegion", 13);
        n += put_field(ext + n, "msgId", text, ids_size);
        n += put_field(ext + n, "queueOffset", number, (size_t)digits);
        answer_binary(out, opaque, ext, n, "", 0);
    } else {
        char *p = (char *)ext;
        n = (size_t)sprintf(p,
                            "\"queueId\":\"%.*s\",\"TRACE_ON\":\"true\","
                            "\"MSG_REGION\":\"DefaultRegion\",\"msgId\":\"",
                            (int)queue_size, queue);
        memcpy(p + n, text, ids_size);
        n += ids_size;
        n += (size_t)sprintf(p + n, "\",\"queueOffset\":\"%llu\"", offset);
        answer_json(out, opaque, p, n, "", 0);
    }
    offset += count;
}

/* A JSON request header is only looked at as far as a route or a plain send needs it. */
static int json_number(const char *header, size_t size, const char *name) {
    char *found = memmem(header, size, name, strlen(name));
    return found == NULL ? 0 : atoi(found + strlen(name));
}

static void serve(struct connection *c, const uint8_t *frame, size_t size) {
    uint32_t mark = get32(frame);
    size_t header = mark & 0xFFFFFF;
    if (header + 4 > size) return;
    const uint8_t *body = frame + 4 + header;
    size_t body_size = size - 4 - header;
    const char *queue = "0";
    size_t queue_size = 1;
    int code, flag;
    int32_t opaque;
    if (mark >> 24 == 1 && header >= 21) {
        code = frame[4] << 8 | frame[5];
        opaque = (int32_t)get32(frame + 9);
        flag = (int)get32(frame + 13);
        const uint8_t *value;
        size_t found = field(frame + 25, body, 'e', &value);
        if (found) queue = (const char *)value, queue_size = found;
    } else {
        const char *text = (const char *)frame + 4;
        code = json_number(text, header, "\"code\":");
        opaque = json_number(text, header, "\"opaque\":");
        flag = json_number(text, header, "\"flag\":");
    }
    if (flag & 2) return; /* oneway */
    if (code == 10 || code == 310 || code == 320)
        answer_send(&c->out, opaque, queue, queue_size, body, body_size, code == 320);
    else if (code == 105)
        answer(&c->out, opaque, route, route_size);
    else
        answer(&c->out, opaque, "", 0);
}

static void make_route(void) {
    char *p = route = malloc((size_t)brokers * 400 + 256);
    if (p == NULL) die("malloc");
    p += sprintf(p, "{\"brokerDatas\":[");
    for (int i = 0; i < brokers; i++)
        p += sprintf(p,
                     "%s{\"brokerAddrs\":{\"0\":\"127.0.0.1:%d\"},\"brokerName\":\"broker-%03d\","
                     "\"cluster\":\"Acker\",\"enableActingMaster\":false}",
                     i ? "," : "", ports[i], i);
    p += sprintf(p, "],\"filterServerTable\":{},\"queueDatas\":[");
    for (int i = 0; i < brokers; i++)
        p += sprintf(p,
                     "%s{\"brokerName\":\"broker-%03d\",\"perm\":6,\"readQueueNums\":%d,"
                     "\"topicSysFlag\":0,\"writeQueueNums\":%d}",
                     i ? "," : "", i, queues, queues);
    p += sprintf(p, "]}");
    route_size = (size_t)(p - route);
}

static void watch(int fd, int is_listener) {
    struct connection *c = calloc(1, sizeof *c);
    if (c == NULL) die("calloc");
    c->fd = fd, c->is_listener = is_listener;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
}

static int listen_on_loopback(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (fd < 0) die("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, 1024)) die("listen");
    getsockname(fd, (struct sockaddr *)&address, &size);
    watch(fd, 1);
    return ntohs(address.sin_port);
}

static void end(struct connection *c) {
    close(c->fd);
    free(c->in.data);
    free(c->out.data);
    free(c);
}

/* 0 when the connection is over. */
static int flush(struct connection *c) {
    while (c->out.start < c->out.end) {
        ssize_t n = write(c->fd, c->out.data + c->out.start, c->out.end - c->out.start);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd wait = {.fd = c->fd, .events = POLLOUT};
            if (poll(&wait, 1, 10000) <= 0) return 0;
            continue;
        }
        if (n <= 0) return 0;
        c->out.start += (size_t)n;
    }
    return 1;
}

static void read_some(struct connection *c) {
    ssize_t n = read(c->fd, room(&c->in, READ_AT_ONCE), READ_AT_ONCE);
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN) end(c);
        return;
    }
    c->in.end += (size_t)n;
    while (c->in.end - c->in.start >= 8) {
        size_t size = get32(c->in.data + c->in.start);
        if (size < 4 || size > MAX_FRAME) {
            end(c);
            return;
        }
        if (c->in.end - c->in.start < size + 4) break;
        serve(c, c->in.data + c->in.start + 4, size);
        c->in.start += size + 4;
    }
    if (!flush(c)) end(c);
}

static void accept_one(int listener) {
    int fd = accept(listener, NULL, NULL), one = 1;
    if (fd < 0) return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    watch(fd, 0);
}

int main(int argc, char **argv) {
    brokers = argc > 1 ? atoi(argv[1]) : 1;
    queues = argc > 2 ? atoi(argv[2]) : 4;
    is_binary = argc > 3 && strcmp(argv[3], "binary") == 0;
    if (brokers < 1 || brokers > MAX_BROKERS || queues < 1) {
        fprintf(stderr, "acker BROKERS (1 to %d) QUEUES [json|binary]\n", MAX_BROKERS);
        return 2;
    }
    /* A client that leaves in the middle of an answer ends its connection, not the server. */
    signal(SIGPIPE, SIG_IGN);
    poller = epoll_create1(0);
    for (int i = 0; i < brokers; i++) ports[i] = listen_on_loopback();
    make_route();
    watch(0, 2);
    printf("ready");
    for (int i = 0; i < brokers; i++) printf(" %d", ports[i]);
    printf("\n");
    fflush(stdout);
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(poller, events, 64, -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (c->is_listener == 2) {
                char rest[64];
                if (read(0, rest, sizeof rest) == 0) return 0;
            } else if (c->is_listener)
                accept_one(c->fd);
            else
                read_some(c);
        }
    }
}
