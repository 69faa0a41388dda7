module github.com/lockstep-dev/lockstep/server

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/cockroachdb/datadriven v1.0.3
	github.com/cockroachdb/pebble/v2 v2.1.7
	github.com/google/btree v1.1.3
	github.com/google/go-cmp v0.7.0
	github.com/lockstep-dev/lockstep v0.0.0
	github.com/lockstep-dev/lockstep/api v0.0.0
	github.com/lockstep-dev/lockstep/client v0.0.0
	github.com/prometheus/client_golang v1.25.0
	go.etcd.io/raft/v3 v3.7.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sync v0.25.0
	golang.org/x/sys v0.50.0
	golang.org/x/text v0.44.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
	pgregory.net/rapid v1.3.0
)

replace github.com/lockstep-dev/lockstep => ../

replace github.com/lockstep-dev/lockstep/api => ../api

replace github.com/lockstep-dev/lockstep/client => ../client
