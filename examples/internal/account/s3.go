package account

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/lockstep-dev/lockstep/adapter/s3/s3fence"
	"github.com/lockstep-dev/lockstep/fence"
	"github.com/lockstep-dev/lockstep/internal/testbed/s3server"
)

func startS3(_ context.Context, dir string) (*Store, error) {
	dir, err := os.MkdirTemp(dir, "s3-")
	if err != nil {
		return nil, err
	}
	server, err := s3server.Start(dir)
	if err != nil {
		return nil, err
	}
	return &Store{URL: "s3://" + server.Address(), Close: server.Close}, nil
}

func openS3(ctx context.Context, url, name string) (Pair, error) {
	client := clientOf("http://" + strings.TrimPrefix(url, "s3://"))
	guard, err := s3fence.Open(ctx, client, s3server.Bucket, s3fence.Config{})
	return Pair{plainObject{client: client, key: name}, guarded{guard, name}}, err
}

type plainObject struct {
	unguarded
	client *s3.Client
	key    string
}

func (o plainObject) Read(ctx context.Context) (int, error) {
	object, err := o.client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(s3server.Bucket), Key: aws.String(o.key)})
	if _, missing := errors.AsType[*types.NoSuchKey](err); missing {
		err = fs.ErrNotExist
	}
	if err != nil {
		return opened(nil, err)
	}
	defer object.Body.Close()
	return opened(io.ReadAll(object.Body))
}

func (o plainObject) Write(ctx context.Context, _ fence.Grant, balance int) error {
	_, err := o.client.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String(s3server.Bucket), Key: aws.String(o.key), Body: bytes.NewReader(stored(balance))})
	return err
}

func clientOf(url string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(url), UsePathStyle: true, Region: s3server.Region,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: s3server.AccessKey, SecretAccessKey: s3server.SecretKey}, nil
		}),
	})
}
