// Command driver is the Go client of Apache RocketMQ, obeying commands.
//
// It reads one JSON object per line ({"call": 1, "command": "producer.send", ...}) and answers each
// with one line ({"call": 1, "value": ...} or {"call": 1, "error": {...}}). Commands run side by
// side, so answers may come in another order. The process ends with its input.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// value is what a command answers; it must be something JSON can hold.
type value = any

type command func(given arguments) (value, error)

type driver struct {
	commands map[string]command
	lock     sync.Mutex
	answers  *json.Encoder
}

func main() {
	made := &driver{commands: map[string]command{}, answers: json.NewEncoder(os.Stdout)}
	made.commands["ping"] = func(arguments) (value, error) { return "pong", nil }
	senders := newProducers()
	senders.register(made.commands)
	newConsumers(senders).register(made.commands)
	newLoads(senders).register(made.commands)
	registerAdmin(made.commands)

	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		go made.obey(line)
	}
}

func (d *driver) obey(line []byte) {
	given := arguments{}
	answer := map[string]any{}
	if err := json.Unmarshal(line, &given.values); err != nil {
		answer["error"] = describe(err)
	} else {
		answer["call"] = given.values["call"]
		found, err := d.run(given)
		if err != nil {
			answer["error"] = describe(err)
		} else {
			answer["value"] = found
		}
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	if err := d.answers.Encode(answer); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// run turns a panic of the client into an error, so that one command cannot end the others.
func (d *driver) run(given arguments) (found value, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("panic: %v", broken)
		}
	}()
	name := given.text("command", "")
	chosen := d.commands[name]
	if chosen == nil {
		return nil, fmt.Errorf("there is no command %q", name)
	}
	return chosen(given)
}

func describe(err error) map[string]any {
	return map[string]any{"type": fmt.Sprintf("%T", err), "message": err.Error(), "code": nil}
}
