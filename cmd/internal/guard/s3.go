package guard

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstep-dev/lockstep"
	"github.com/lockstep-dev/lockstep/adapter/s3/s3fence"
	"github.com/lockstep-dev/lockstep/fence"
)

// bucket is an S3 bucket. Credentials and region come from where the AWS tools look for them: their
// variables, files and roles.
var bucket = kind{
	scheme:  "s3",
	example: "s3://reports",
	parse: func(s *Store) error {
		_, _, err := parseBucket(s.text)
		return err
	},
	open: func(ctx context.Context, s Store) (fence.Resetter, func(), error) {
		name, endpoint, err := parseBucket(s.text)
		if err != nil {
			return nil, nil, err
		}
		cfg, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, nil, err
		}
		cfg.Region = cmp.Or(cfg.Region, "us-east-1") // S3 only needs some name
		cli := s3.NewFromConfig(cfg, func(o *s3.Options) {
			if endpoint != "" {
				o.BaseEndpoint, o.UsePathStyle = aws.String(endpoint), true
			}
		})
		g, err := s3fence.Open(ctx, cli, name, s3fence.Config{Prefix: s.marks})
		return g, func() {}, err
	},
}

// parseBucket parses s3://BUCKET?endpoint=URL, where endpoint is set for stores other than
// Amazon's.
func parseBucket(text string) (name, endpoint string, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || strings.Contains(u.Host, ":") || strings.Trim(u.Path, "/") != "" || u.User != nil || u.Fragment != "" {
		return "", "", fmt.Errorf("must be a bucket, such as s3://reports or s3://reports?endpoint=https://store.example:9000")
	}
	query := u.Query()
	endpoint = query.Get("endpoint")
	query.Del("endpoint")
	for key := range query {
		return "", "", fmt.Errorf("s3:// does not support %s", lockstep.Excerpt(key))
	}
	if e, err := url.Parse(endpoint); endpoint != "" && (err != nil || e.Host == "" || e.Scheme != "http" && e.Scheme != "https") {
		return "", "", fmt.Errorf("endpoint: must be a URL such as https://store.example:9000")
	}
	return u.Host, endpoint, nil
}
