// Package concurrency shares the processors among the decodes of a store. It
// knows nothing of tensors: Split cuts elements into ranges, and a
// Pool hands indices of such ranges to its workers.
//
// Waking a second processor costs more than decoding a small tensor, so work is
// batched: the ranges of a whole layer form one Run, which its workers pull from
// one atomic counter, and a Run of a single range stays on its caller.
package concurrency

import (
	"context"
	"errors"
	"fmt"
)

// ContextErr returns nil while ctx is live, and afterwards an error that
// matches both ctx.Err() and, where it differs, context.Cause(ctx).
func ContextErr(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
