module github.com/lockstep-dev/lockstep/adapter/zookeeper

go 1.26.0

require github.com/lockstep-dev/lockstep v0.0.0

require (
	github.com/go-zookeeper/zk v1.0.4 // indirect
	go.uber.org/goleak v1.3.0 // indirect
)

replace github.com/lockstep-dev/lockstep => ../../
