module github.com/lockstep-dev/lockstep/client

go 1.26.0

require (
	github.com/lockstep-dev/lockstep v0.0.0
	github.com/lockstep-dev/lockstep/api v0.0.0
	go.uber.org/goleak v1.3.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
	pgregory.net/rapid v1.3.0
)

require github.com/pmezard/go-difflib v1.0.0 // indirect

require (
	github.com/cockroachdb/datadriven v1.0.3
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace github.com/lockstep-dev/lockstep => ../

replace github.com/lockstep-dev/lockstep/api => ../api
