package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// kubernetesObject has the fields of an object in deploy/kubernetes that the tests use.
type kubernetesObject struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		Replicas       int
		MaxUnavailable int `yaml:"maxUnavailable"`
		Template       struct {
			Spec struct {
				EnableServiceLinks            *bool `yaml:"enableServiceLinks"`
				TerminationGracePeriodSeconds int   `yaml:"terminationGracePeriodSeconds"`
				Containers                    []struct {
					Args         []string
					VolumeMounts []struct {
						MountPath string `yaml:"mountPath"`
					} `yaml:"volumeMounts"`
				}
			}
		}
	}
}

func objects(t *testing.T, path string) map[string]kubernetesObject {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]kubernetesObject{}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o kubernetesObject
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if o.APIVersion == "" || o.Kind == "" || o.Metadata.Name != "lockstep" {
			t.Errorf("%s: %q %q %q", path, o.APIVersion, o.Kind, o.Metadata.Name)
		}
		all[o.Kind] = o
	}
}

func TestThePodsOfKubernetesHaveFlagsThatExist(t *testing.T) {
	all := objects(t, "../../../deploy/kubernetes/lockstep.yaml")
	set := all["StatefulSet"].Spec
	pod := set.Template.Spec
	if len(all) != 4 || len(pod.Containers) != 1 || set.Replicas != 3 || all["PodDisruptionBudget"].Spec.MaxUnavailable != 1 {
		t.Fatalf("%+v", all)
	}
	if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks || pod.TerminationGracePeriodSeconds < 20 {
		t.Errorf("service links %v, %d s of grace", pod.EnableServiceLinks, pod.TerminationGracePeriodSeconds)
	}
	c := pod.Containers[0]
	code, out, errs := invoke(nil, append(c.Args, "--print-config")...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var config map[string]any
	if err := yaml.Unmarshal([]byte(out), &config); err != nil {
		t.Fatal(err)
	}
	if members, ok := config["initial-cluster"].([]any); !ok || len(members) != set.Replicas {
		t.Errorf("initial-cluster is %v, with %d replicas", config["initial-cluster"], set.Replicas)
	}
	for _, flag := range []string{"data-dir", "cluster-secret-file"} {
		mounted := false
		for _, m := range c.VolumeMounts {
			mounted = mounted || strings.HasPrefix(config[flag].(string), m.MountPath+"/")
		}
		if !mounted {
			t.Errorf("--%s %v is on no volume", flag, config[flag])
		}
	}
}

func TestTheFilesForPrometheusAreYAML(t *testing.T) {
	paths, err := filepath.Glob("../../../deploy/prometheus/*.yml")
	if err != nil || len(paths) != 3 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var content map[string]any
		if err := yaml.Unmarshal(text, &content); err != nil || len(content) == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
}
