package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A codec reads and writes the JSON form of messages. It accepts exactly one value, and only if it
// understands all of it.
type codec struct{}

var errNoMessage = errors.New("gateway: not a protobuf message")

// ContentType returns the content type of answers.
func (codec) ContentType(any) string { return "application/json" }

// Marshal writes a message on one line.
func (codec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, errNoMessage
	}
	text, err := marshal.Marshal(m)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil { // the encoder adds spaces at random
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// Unmarshal reads a message.
func (codec) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return errNoMessage
	}
	return protojson.Unmarshal(data, m)
}

// NewDecoder reads the single message that r consists of. An empty r is an empty message.
func (c codec) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		data, err := io.ReadAll(io.LimitReader(r, maxBodyBytes))
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(data)) == 0 {
			return io.EOF // the generated code takes this for an empty message
		}
		return c.Unmarshal(data, v)
	})
}

// NewEncoder writes messages to w.
func (c codec) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		data, err := c.Marshal(v)
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	})
}

// strictQuery refuses parameters that the call does not have: a misspelled one would have no
// effect.
type strictQuery struct{}

// beStrict installs it, once and for the whole process: the generated code finds it in a package
// variable of its runtime.
var beStrict = sync.OnceFunc(func() { runtime.NewServeMux(runtime.SetQueryParameterParser(strictQuery{})) })

// queryProblem begins the message of an error about a parameter.
const queryProblem = "query: "

// Parse sets the fields of m.
func (strictQuery) Parse(m proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	fields := m.ProtoReflect().Descriptor().Fields()
	for key, all := range values {
		f := fields.ByName(protoreflect.Name(key))
		switch {
		case f == nil || filter.HasCommonPrefix([]string{key}):
			return fmt.Errorf("%sunknown parameter %.64q", queryProblem, key)
		case len(all) > 1 && !f.IsList():
			return fmt.Errorf("%sduplicate parameter %q", queryProblem, key)
		}
	}
	if err := (&runtime.DefaultQueryParser{}).Parse(m, values, filter); err != nil {
		return fmt.Errorf("%s%w", queryProblem, err)
	}
	return nil
}

func parseQuery(r *http.Request) (url.Values, error) { return url.ParseQuery(r.URL.RawQuery) }
