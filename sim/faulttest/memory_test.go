package faulttest_test

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"

	"github.com/lockstep-dev/lockstep/sim/faulttest"
)

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// heapOf returns the size of node i's heap after a collection, in bytes.
func heapOf(t *testing.T, cluster *faulttest.Cluster, i int) int64 {
	t.Helper()
	get(t, "http://"+cluster.HTTP(i)+"/debug/pprof/heap?gc=1")
	metrics := get(t, "http://"+cluster.HTTP(i)+"/metrics")
	found := regexp.MustCompile(`(?m)^go_memstats_heap_alloc_bytes (\S+)`).FindSubmatch(metrics)
	if found == nil {
		t.Fatal("no go_memstats_heap_alloc_bytes in the metrics")
	}
	heap, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(heap)
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, response.Status, err)
	}
	return body
}
