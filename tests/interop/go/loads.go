package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// loads send as fast as they can from some goroutines until told to stop, and remember every send as
// three numbers: microseconds from the start of the load to its end, microseconds it took, and 1 for a
// stored message or 0 for a failure.
type loads struct {
	senders *producers
	lock    sync.Mutex
	runs    map[string]*run
}

type run struct {
	client rocketmq.Producer
	places chan struct{}
	topic  string
	body   []byte
	begin  time.Time
	over   atomic.Bool
	done   sync.WaitGroup
	lock   sync.Mutex
	sends  [][3]int64
	errors map[string]int
}

func newLoads(senders *producers) *loads {
	return &loads{senders: senders, runs: map[string]*run{}}
}

func (l *loads) register(commands map[string]command) {
	commands["load.start"] = l.start
	commands["load.stop"] = l.stop
}

func (l *loads) start(given arguments) (value, error) {
	client, err := l.senders.get(given)
	if err != nil {
		return nil, err
	}
	made := &run{
		client: client,
		topic:  given.text("topic", ""),
		body:   make([]byte, given.number("body_size", 200)),
		begin:  time.Now(),
		errors: map[string]int{},
	}
	l.lock.Lock()
	l.runs[given.text("load", "")] = made
	l.lock.Unlock()
	work := made.work
	if places := given.number("in_flight", 0); places > 0 {
		made.places, work = make(chan struct{}, places), made.fly
	}
	for range given.number("threads", 1) {
		made.done.Add(1)
		go work()
	}
	return nil, nil
}

func (l *loads) stop(given arguments) (value, error) {
	name := given.text("load", "")
	l.lock.Lock()
	found := l.runs[name]
	delete(l.runs, name)
	l.lock.Unlock()
	if found == nil {
		return nil, fmt.Errorf("no load was started under the name %q", name)
	}
	found.over.Store(true)
	found.done.Wait()
	return map[string]any{"sends": found.sends, "errors": found.errors}, nil
}

func (r *run) work() {
	defer r.done.Done()
	for !r.over.Load() {
		at := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), sendLimit)
		_, err := r.client.SendSync(ctx, primitive.NewMessage(r.topic, r.body))
		cancel()
		r.record(at, err)
	}
}

// fly keeps so many messages under way, and waits in the end for those that are left.
func (r *run) fly() {
	defer r.done.Done()
	for !r.over.Load() {
		r.places <- struct{}{}
		at := time.Now()
		err := r.client.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
			r.record(at, err)
			<-r.places
		}, primitive.NewMessage(r.topic, r.body))
		if err != nil {
			r.record(at, err)
			<-r.places
		}
	}
	limit := time.After(30 * time.Second)
	for range cap(r.places) {
		select {
		case r.places <- struct{}{}:
		case <-limit:
			return
		}
	}
}

func (r *run) record(at time.Time, err error) {
	now := time.Now()
	good := int64(1)
	r.lock.Lock()
	defer r.lock.Unlock()
	if err != nil {
		good = 0
		r.errors[fmt.Sprintf("%T", err)]++
	}
	r.sends = append(r.sends, [3]int64{now.Sub(r.begin).Microseconds(), now.Sub(at).Microseconds(), good})
}
