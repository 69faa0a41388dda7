package s3fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/lockstep-dev/lockstep"
)

// A verdict is what the answer to a conditional put says.
type verdict int

const (
	done    verdict = iota // it took effect
	raced                  // it had no effect: the object is another one by now
	unknown                // it may have taken effect
	refused                // it had no effect, and would have none again
)

// judge reads the answer to a conditional put.
func judge(err error) verdict {
	if err == nil {
		return done
	}
	switch status := statusOf(err); {
	case status == http.StatusPreconditionFailed, status == http.StatusConflict, noSuchObject(err):
		return raced
	case status == http.StatusNotImplemented, status >= 400 && status < 500 && status != http.StatusRequestTimeout:
		return refused
	default: // nobody answered, or somebody on the way did
		return unknown
	}
}

// The codes of S3 that are looked at, as its manual has them.
const (
	codeNoKey    = "NoSuchKey"
	codeNotFound = "NotFound" // of a request without a body in its answer
)

func statusOf(err error) int {
	answer, ok := errors.AsType[*smithyhttp.ResponseError](err)
	if !ok {
		return 0
	}
	return answer.HTTPStatusCode()
}

func codeOf(err error) string {
	answer, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return ""
	}
	return answer.ErrorCode()
}

// noSuchObject reports whether S3 says that there is no object at the key. That there is no bucket
// is something else.
func noSuchObject(err error) bool {
	return err != nil && statusOf(err) == http.StatusNotFound && (codeOf(err) == codeNoKey || codeOf(err) == codeNotFound)
}

// failed is the error of a request that had no effect on the guarded resource, or nil.
func failed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case statusOf(err) == http.StatusNotImplemented:
		return fmt.Errorf("%w: %w", lockstep.ErrUnsupported, err)
	case statusOf(err) == http.StatusInsufficientStorage, codeOf(err) == "QuotaExceeded", codeOf(err) == "EntityTooLarge":
		return fmt.Errorf("%w: %w", lockstep.ErrQuota, err)
	default:
		return fmt.Errorf("%w: %w", lockstep.ErrUnavailable, err)
	}
}

// doubtful is the error of a step one of whose puts may have taken effect. A verdict about a later
// attempt is no verdict about that put, so it is not wrapped.
func doubtful(cause, then error) error {
	if then == nil {
		return fmt.Errorf("%w: %w", lockstep.ErrUncertain, cause)
	}
	return fmt.Errorf("%w: %w; then: %v", lockstep.ErrUncertain, cause, then)
}
