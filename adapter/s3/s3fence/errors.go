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

// A verdict is the meaning of the response to a conditional put.
type verdict int

const (
	done    verdict = iota // it took effect
	raced                  // it had no effect: the object has changed
	unknown                // it may have taken effect
	refused                // it had no effect, and a retry would have none either
)

// judge interprets the response to a conditional put.
func judge(err error) verdict {
	if err == nil {
		return done
	}
	switch status := statusOf(err); {
	case status == http.StatusPreconditionFailed, status == http.StatusConflict, noSuchObject(err):
		return raced
	case status == http.StatusNotImplemented, status >= 400 && status < 500 && status != http.StatusRequestTimeout:
		return refused
	default: // no one answered, or something on the way did
		return unknown
	}
}

// The S3 error codes that matter here, as in its manual.
const (
	codeNoKey    = "NoSuchKey"
	codeNotFound = "NotFound" // for a request whose response has no body
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

// noSuchObject reports whether S3 says that there is no object at the key. A missing bucket is a
// different error.
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

// doubtful is the error of a step with a put that may have taken effect. A verdict on a later
// attempt is not a verdict on that put, so it is not wrapped.
func doubtful(cause, then error) error {
	if then == nil {
		return fmt.Errorf("%w: %w", lockstep.ErrUncertain, cause)
	}
	return fmt.Errorf("%w: %w; then: %v", lockstep.ErrUncertain, cause, then)
}
