// Package backend turns a URL into the Locker of a backend. It is the one place where the program
// knows all backends.
package backend

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-dev/lockstep"
)

// A URL names a backend and says where it is. URLs of Redis and Postgres are those that their own
// tools accept.
type URL struct {
	kind   *kind
	scheme string // as given
	text   string
	Hosts  []string // as given, or one empty string if there are none; callers must check them
	path   string   // after the hosts, without the slash
	user   *url.Userinfo
	query  url.Values
}

// Scheme returns the scheme of the URL, such as "redis".
func (u URL) Scheme() string { return u.kind.scheme }

// Place says where the locks are, without credentials. It is the same for the same hosts in any
// order.
func (u URL) Place() string {
	hosts := slices.Sorted(slices.Values(u.Hosts))
	return u.kind.scheme + "://" + strings.Join(hosts, ",") + "/" + u.path + "?" + u.query.Encode()
}

// Native reports whether the URL refers to the Lockstep service, which can do more than the
// contract requires.
func (u URL) Native() bool { return u.kind.scheme == "lockstep" }

// Parse parses a URL. Its error says what is wrong, and never contains a password.
func Parse(text string) (URL, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return URL{}, fmt.Errorf("must be a URL such as %s", kinds[0].example)
	}
	k := kindOf(scheme)
	if k == nil {
		return URL{}, fmt.Errorf("unknown scheme %s: must be one of %s", lockstep.Excerpt(scheme), strings.Join(schemes(), ", "))
	}
	u := URL{kind: k, scheme: scheme, text: text}
	if err := u.parseRest(rest); err != nil {
		return URL{}, fmt.Errorf("%w: must be a URL such as %s", err, k.example)
	}
	return u, k.check(u)
}

// parseRest parses user:password@host:port,host:port/path?key=value. net/url alone cannot, because
// of the list of hosts.
func (u *URL) parseRest(rest string) error {
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, _ := strings.Cut(rest, "/")
	var err error
	if u.query, err = url.ParseQuery(query); err != nil {
		return fmt.Errorf("cannot parse the part after the question mark")
	}
	if at := strings.LastIndex(hosts, "@"); at >= 0 {
		parsed, err := url.Parse("x://" + hosts[:at+1] + "x")
		if err != nil {
			return fmt.Errorf("cannot parse user and password: write %%40 for @ and %%2F for /")
		}
		u.user, hosts = parsed.User, hosts[at+1:]
	}
	u.path, u.Hosts = path, strings.Split(hosts, ",")
	return nil
}

// only rejects the query keys and paths that this kind of URL does not support.
func (u URL) only(path bool, keys ...string) error {
	if u.path != "" && !path {
		return fmt.Errorf("%s:// takes no path: %s", u.kind.scheme, lockstep.Excerpt(u.path))
	}
	for key := range u.query {
		known := false
		for _, k := range keys {
			known = known || k == key
		}
		if !known {
			return fmt.Errorf("%s:// does not support %s", u.kind.scheme, lockstep.Excerpt(key))
		}
	}
	return nil
}

// withPorts returns the hosts, each with a port.
func (u URL) withPorts(port string) (all []string, err error) {
	for _, host := range u.Hosts {
		address, err := withPort(host, port)
		if err != nil {
			return nil, err
		}
		all = append(all, address)
	}
	return all, nil
}

// withPort adds the port to a host that has none, and checks an existing one.
func withPort(host, port string) (string, error) {
	if !strings.Contains(host, ":") || strings.HasSuffix(host, "]") {
		host += ":" + port
	}
	name, number, err := net.SplitHostPort(host)
	n, errPort := strconv.ParseUint(number, 10, 16)
	if err != nil || name == "" || errPort != nil || n == 0 || url.PathEscape(name) != name && net.ParseIP(name) == nil {
		return "", fmt.Errorf("%s is not host:port", lockstep.Excerpt(host))
	}
	return host, nil
}
