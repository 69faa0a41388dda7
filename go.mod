module github.com/lockstep-dev/lockstep

go 1.26.0
