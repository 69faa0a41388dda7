module github.com/lockstep-dev/lockstep/cmd

go 1.26.0

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/lockstep-dev/lockstep v0.0.0
	github.com/lockstep-dev/lockstep/api v0.0.0
	github.com/lockstep-dev/lockstep/client v0.0.0
	github.com/lockstep-dev/lockstep/server v0.0.0
	github.com/spf13/cobra v1.10.2
	go.yaml.in/yaml/v3 v3.0.6
	golang.org/x/sync v0.25.0
	golang.org/x/sys v0.50.0
	golang.org/x/term v0.48.0
	google.golang.org/grpc v1.85.0
)

replace github.com/lockstep-dev/lockstep => ../

replace github.com/lockstep-dev/lockstep/api => ../api

replace github.com/lockstep-dev/lockstep/client => ../client

replace github.com/lockstep-dev/lockstep/server => ../server
