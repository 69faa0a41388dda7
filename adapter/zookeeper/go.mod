module github.com/lockstep-dev/lockstep/adapter/zookeeper

go 1.26.0

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/lockstep-dev/lockstep v0.0.0
	go.uber.org/goleak v1.3.0
)

replace github.com/lockstep-dev/lockstep => ../../
