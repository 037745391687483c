package concurrency

import (
	"fmt"
	"runtime/debug"
)

// Panic carries a panic from the goroutine where it happened to the one that
// waits for the work. Its text contains the stack of the former.
type Panic struct {
	Value any    // what was given to panic
	Stack string // stack of the goroutine that panicked
}

// Recovered wraps v, the result of recover in a deferred function. A *Panic is
// returned as it is, so that the stack stays that of the first.
func Recovered(v any) *Panic {
	if p, ok := v.(*Panic); ok {
		return p
	}
	return &Panic{Value: v, Stack: string(debug.Stack())}
}

func (p *Panic) Error() string {
	return fmt.Sprintf("%v\n\npanic in worker:\n%s", p.Value, p.Stack)
}

// Unwrap returns the panic's value where that is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}
