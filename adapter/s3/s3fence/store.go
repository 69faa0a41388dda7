package s3fence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// A store is a bucket.
type store struct {
	cli    *s3.Client
	bucket string
}

// everyVersion is the condition of a put that must not find an object.
const everyVersion = "*"

// get reads an object of at most limit bytes. noSuchObject recognizes the error for a missing one.
func (s store) get(ctx context.Context, key string, limit int64) (content []byte, etag string, err error) {
	answer, err := s.cli.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	content, err = io.ReadAll(io.LimitReader(answer.Body, limit+1))
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("read the object %s: %w", key, err)
	case int64(len(content)) > limit:
		return nil, "", fmt.Errorf("the object %s has more than %d bytes", key, limit)
	case aws.ToString(answer.ETag) == "":
		return nil, "", errors.New("the answer has no ETag")
	}
	return content, *answer.ETag, nil
}

// put writes an object, whatever is there.
func (s store) put(ctx context.Context, key string, content []byte) error {
	_, err := s.cli.PutObject(ctx, &s3.PutObjectInput{Bucket: &s.bucket, Key: &key, Body: bytes.NewReader(content)})
	return err
}

// putIf writes an object if and only if the current one has the ETag or, for "", if there is none.
// It is sent once, whatever the client's options say: before repeating it, the caller checks
// whether it took effect.
func (s store) putIf(ctx context.Context, key, etag string, content []byte) (newETag string, err error) {
	in := &s3.PutObjectInput{Bucket: &s.bucket, Key: &key, Body: bytes.NewReader(content)}
	if etag == "" {
		in.IfNoneMatch = aws.String(everyVersion)
	} else {
		in.IfMatch = &etag
	}
	answer, err := s.cli.PutObject(ctx, in, func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
	if err != nil {
		return "", err
	}
	return aws.ToString(answer.ETag), nil
}

// exists reports whether there is an object at the key.
func (s store) exists(ctx context.Context, key string) (bool, error) {
	_, err := s.cli.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: &key})
	if noSuchObject(err) {
		return false, nil
	}
	return err == nil, err
}

// remove removes an object. There may be none.
func (s store) remove(ctx context.Context, key string) error {
	_, err := s.cli.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: &key})
	return err
}

// discard removes unneeded objects, as far as it can. [Guard.Sweep] removes data that it leaves
// behind.
func (s store) discard(ctx context.Context, keys ...string) {
	for _, key := range keys {
		_ = s.remove(ctx, key) // the caller's work is done, whatever happens here
	}
}

// list calls f with the keys that begin with prefix, up to 1000 at a time.
func (s store) list(ctx context.Context, prefix string, f func(keys []string) error) error {
	pages := s3.NewListObjectsV2Paginator(s.cli, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return failed(err)
		}
		var keys []string
		for _, object := range page.Contents {
			keys = append(keys, aws.ToString(object.Key))
		}
		if err := f(keys); err != nil {
			return err
		}
	}
	return nil
}

// maxObjectBytes bounds how much data is read: it is the most that S3 can store in an object.
const maxObjectBytes = 50 << 40
