package s3fence

import "github.com/aws/aws-sdk-go-v2/service/s3"

// NewUntried is Open without the trial, for tests that count requests or open a guard hundreds of
// times.
func NewUntried(cli *s3.Client, bucket string, cfg Config) (*Guard, error) {
	return newGuard(cli, bucket, cfg)
}
