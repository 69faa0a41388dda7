package s3fence_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstep-dev/lockstep/internal/testbed/s3server"
)

// startClone starts a store that behaves like the server, except for what change does to a request.
// It signs again whatever it forwards.
func startClone(t *testing.T, s *s3server.Server, change func(*http.Request)) (address string) {
	t.Helper()
	target, err := url.Parse(s.Endpoint())
	must(t, err)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = target.Host
			change(r.Out)
			sign(t, r.Out)
		},
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
	})
	return server.URL
}

// sign signs a request as the SDK does. It keeps the sender's body hash.
func sign(t *testing.T, r *http.Request) {
	for _, header := range []string{"Authorization", "X-Forwarded-For"} {
		r.Header.Del(header)
	}
	who := aws.Credentials{AccessKeyID: s3server.AccessKey, SecretAccessKey: s3server.SecretKey}
	err := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).
		SignHTTP(context.WithoutCancel(t.Context()), who, r, r.Header.Get("X-Amz-Content-Sha256"), "s3", s3server.Region, time.Now())
	if err != nil {
		t.Error(err)
	}
}

// dropping simulates a store that ignores the headers.
func dropping(headers ...string) func(*http.Request) {
	return func(r *http.Request) {
		for _, header := range headers {
			r.Header.Del(header)
		}
	}
}

// lookingFirst simulates a store that checks first and then writes, without excluding others in
// between.
func lookingFirst(t *testing.T, s *s3server.Server) func(*http.Request) {
	cli, _ := dial(t, s.Endpoint())
	return func(r *http.Request) {
		bucket, key := s3server.Bucket, r.URL.Path[len("/"+s3server.Bucket+"/"):]
		present, err := cli.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucket, Key: &key})
		there := err == nil
		match := r.Header.Get("If-Match")
		if match != "" && there && aws.ToString(present.ETag) == match || r.Header.Get("If-None-Match") != "" && !there {
			r.Header.Del("If-Match")
			r.Header.Del("If-None-Match")
		}
	}
}
