// The Go client as a program that obeys lines; the protocol is that of ../java/BenchClient.java.
package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	places = 1 << 20
	shards = 997
)

// Bodies are slices of it, each at a place of its own; the shapes are those of ../shapes.py.
var noise []byte

type task struct {
	path                          string
	count, threads, batch, window int
	topic                         string
	size                          int
	shape                         string
}

func read(line string) (task, error) {
	words := strings.Fields(line)
	if len(words) != 8 {
		return task{}, fmt.Errorf("a line has 8 words, this one %d", len(words))
	}
	switch words[7] {
	case "body", "key", "rich", "sharded":
	default:
		return task{}, fmt.Errorf("no such shape: %s", words[7])
	}
	numbers := make([]int, 0, 5)
	for _, word := range append(append([]string{}, words[1:5]...), words[6]) {
		number, err := strconv.Atoi(word)
		if err != nil {
			return task{}, err
		}
		numbers = append(numbers, number)
	}
	if size := places + numbers[4]; len(noise) != size {
		noise = make([]byte, size)
		rand.New(rand.NewSource(int64(size))).Read(noise)
	}
	return task{words[0], numbers[0], numbers[1], numbers[2], numbers[3], words[5], numbers[4], words[7]}, nil
}

func (t task) make(number int) *primitive.Message {
	place := number % places
	body := append([]byte(nil), noise[place:place+t.size]...)
	message := primitive.NewMessage(t.topic, body)
	if t.shape == "body" {
		return message
	}
	message.WithTag("pay").WithKeys([]string{"order-" + strconv.Itoa(number)})
	if t.shape == "key" {
		return message
	}
	message.WithProperty("region", "eu-west")
	message.WithProperty("amount", strconv.Itoa(number))
	message.WithProperty("trace", fmt.Sprintf("%016x", number))
	if t.shape == "sharded" {
		message.WithShardingKey("user-" + strconv.Itoa(number%shards))
	}
	return message
}

func cpuSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	seconds := float64(used.Utime.Sec + used.Stime.Sec)
	return seconds + float64(used.Utime.Usec+used.Stime.Usec)/1e6
}

func (t task) messages() int {
	if t.path == "sync" {
		return t.count / t.threads * t.threads
	}
	return t.count / t.batch * t.batch
}

func (t task) next(first int) []*primitive.Message {
	messages := make([]*primitive.Message, t.batch)
	for i := range messages {
		messages[i] = t.make(first + i)
	}
	return messages
}

// blocking sends one message after another in each goroutine.
func blocking(client rocketmq.Producer, t task) ([]float64, error) {
	share := t.count / t.threads
	latencies := make([]float64, share*t.threads)
	var failures atomic.Int64
	var workers sync.WaitGroup
	for number := 0; number < t.threads; number++ {
		workers.Add(1)
		go func(first int, mine []float64) {
			defer workers.Done()
			for i := range mine {
				began := time.Now()
				if _, err := client.SendSync(context.Background(), t.make(first+i)); err != nil {
					failures.Add(1)
				}
				mine[i] = time.Since(began).Seconds()
			}
		}(number*share, latencies[number*share:(number+1)*share])
	}
	workers.Wait()
	return latencies, check(&failures)
}

// oneway sends messages without an answer, then one with: before it, all have been written.
func oneway(client rocketmq.Producer, t task) error {
	for i := 0; i < t.count; i++ {
		if err := client.SendOneWay(context.Background(), t.make(i)); err != nil {
			return err
		}
	}
	_, err := client.SendSync(context.Background(), t.make(t.count))
	return err
}

// flying sends messages, or batches of them, with callbacks; at most so many without an answer.
func flying(client rocketmq.Producer, t task) error {
	room := make(chan struct{}, t.window)
	var failures atomic.Int64
	for i := 0; i < t.count/t.batch; i++ {
		room <- struct{}{}
		err := client.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
			if err != nil {
				failures.Add(1)
			}
			<-room
		}, t.next(i*t.batch)...)
		if err != nil {
			return err
		}
	}
	limit := time.After(60 * time.Second)
	for i := 0; i < t.window; i++ {
		select {
		case room <- struct{}{}:
		case <-limit:
			return fmt.Errorf("answers are missing after 60 s")
		}
	}
	return check(&failures)
}

func check(failures *atomic.Int64) error {
	if count := failures.Load(); count > 0 {
		return fmt.Errorf("%d sends failed", count)
	}
	return nil
}

func obey(plain, ordered rocketmq.Producer, line string) string {
	t, err := read(line)
	if err != nil {
		return "error " + err.Error()
	}
	client := plain
	if t.shape == "sharded" {
		client = ordered
	}
	cpu, began := cpuSeconds(), time.Now()
	var latencies []float64
	switch t.path {
	case "sync":
		latencies, err = blocking(client, t)
	case "async", "batch":
		err = flying(client, t)
	case "oneway":
		err = oneway(client, t)
	default:
		err = fmt.Errorf("no such path: %s", t.path)
	}
	seconds, used := time.Since(began).Seconds(), cpuSeconds()-cpu
	if err != nil {
		return "error " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	p50, p99 := 0.0, 0.0
	if n := len(latencies); n > 0 {
		sort.Float64s(latencies)
		p50, p99 = latencies[n/2], latencies[min(n-1, n*99/100)]
	}
	return fmt.Sprintf("ok %d %.9f %.9f %.9f %.9f", t.messages(), seconds, used, p50, p99)
}

func start(group string, more ...producer.Option) rocketmq.Producer {
	options := append([]producer.Option{
		producer.WithNameServer([]string{os.Args[1]}),
		producer.WithGroupName(group),
		producer.WithInstanceName(group),
		// A busy machine makes answers late, which is no failure of the client's.
		producer.WithSendMsgTimeout(30 * time.Second),
	}, more...)
	client, err := rocketmq.NewProducer(options...)
	if err == nil {
		err = client.Start()
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	return client
}

func main() {
	rlog.SetLogLevel("error")
	plain := start("bench-go")
	ordered := start("bench-go-ordered", producer.WithQueueSelector(producer.NewHashQueueSelector()))
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(obey(plain, ordered, lines.Text()))
	}
}
