package redlock

import "bytes"

const (
	clientBytes = 10
	nodeBytes   = 4 + 5*modelClients // what a node stores, and what the clients know about it
)

// A stateKey is a compact encoding of a state. States that differ only in the naming of nodes and
// clients have the same key: their futures differ only in that.
type stateKey [modelClients*clientBytes + modelNodes*nodeBytes + 3]byte

// The orders of three clients; the first two are also those of two clients, the first that of one.
var orders = [][modelClients]int{{0, 1, 2}, {1, 0, 2}, {0, 2, 1}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// keyOf returns the smallest of the keys over all orders of the clients.
func keyOf(s *modelState, clients int) (least stateKey) {
	count := []int{0, 1, 2, 6}[clients]
	for i, who := range orders[:count] {
		key := write(s, who, clients)
		if i == 0 || bytes.Compare(key[:], least[:]) < 0 {
			least = key
		}
	}
	return least
}

// write encodes the clients in the given order and the nodes sorted by their encodings.
func write(s *modelState, who [modelClients]int, clients int) (key stateKey) {
	at := 0
	put := func(b ...byte) { at += copy(key[at:], b) }
	var place [modelClients + 1]byte // position of the client with this number
	for i, c := range who[:clients] {
		place[c+1] = byte(i + 1)
		k := &s.clients[c]
		put(byte(k.attempt.phase), byte(k.attempt.token), bit(k.begun), bit(k.held), bit(k.done), bit(k.first), bit(k.second), k.floor, bit(k.renewing), bit(k.renewed))
	}
	var nodes [modelNodes][nodeBytes]byte
	for n := range nodes {
		node := s.nodes[n]
		line := append(nodes[n][:0], place[node.holder], node.reading, node.counter, bit(node.renewed))
		for _, c := range who[:clients] {
			k := &s.clients[c]
			line = append(line, byte(k.attempt.nodes[n]), byte(k.attempt.counters[n]), k.take[n], bit(k.raise[n]), bit(k.extend[n])|bit(k.extended[n])<<1)
		}
	}
	for _, pair := range [][2]int{{0, 1}, {1, 2}, {0, 1}} { // sorts three
		if a, b := &nodes[pair[0]], &nodes[pair[1]]; bytes.Compare(a[:], b[:]) > 0 {
			*a, *b = *b, *a
		}
	}
	for n := range nodes {
		put(nodes[n][:]...)
	}
	put(byte(s.forgets), bit(s.twice), bit(s.renewing))
	return key
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}
