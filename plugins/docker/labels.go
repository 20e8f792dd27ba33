package docker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"

	"github.com/berth-dev/berth/shared/workspace"
)

// Labels of what we make, beside workspace.LabelManaged and LabelProvider. An
// image's labels are its containers' too, and an image may have any: so a
// container that we make has all of them, and what makes it ours is a provider's
// name with a token, which no image of ours has.
const (
	labelToken  = workspace.LabelPrefix + "token"
	labelName   = workspace.LabelPrefix + "name" // as asked for, or empty
	labelConfig = workspace.LabelPrefix + "config"
	labelGuest  = workspace.LabelPrefix + "guest" // the digest of the guest's binary, or empty
	// labelHelper is on containers that are never started and are removed within
	// the call that made them.
	labelHelper = workspace.LabelPrefix + "helper"
)

// record is what attaching needs, kept in labelConfig. It says nothing secret
// and nothing of the environment. Fields are added, never changed: workspaces
// live longer than plugins.
type record struct {
	Image    string `json:"image,omitempty"`
	Runtime  string `json:"runtime,omitempty"`
	WorkDir  string `json:"work_dir"`
	User     string `json:"user,omitempty"`
	UID      int    `json:"uid"`
	GID      int    `json:"gid"`
	ReadOnly bool   `json:"read_only,omitempty"`
	// Guest is one of the placements, and Reason says why it is no better one.
	Guest  string `json:"guest"`
	Reason string `json:"reason,omitempty"`
	// Labels are the keys of the embedder's labels: the container has its image's
	// as well.
	Labels []string `json:"labels,omitempty"`
}

// labels are all labels of a new container.
func (r record) labels(provider, token, name string, guest string, own map[string]string) (map[string]string, error) {
	r.Labels = slices.Sorted(maps.Keys(own))
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("writing the workspace's record: %w", err)
	}
	labels := maps.Clone(own)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, map[string]string{
		workspace.LabelManaged:  "true",
		workspace.LabelProvider: provider,
		labelToken:              token,
		labelName:               name,
		labelConfig:             string(text),
		labelGuest:              guest,
		labelHelper:             "",
	})
	return labels, nil
}

func readRecord(labels map[string]string) (record, error) {
	var r record
	if err := json.Unmarshal([]byte(labels[labelConfig]), &r); err != nil {
		return r, fmt.Errorf("its label %s cannot be read: %w: %w", labelConfig, err, workspace.ErrUnavailable)
	}
	return r, nil
}

// ownLabels are the embedder's.
func (r record) ownLabels(labels map[string]string) map[string]string {
	own := map[string]string{}
	for _, key := range r.Labels {
		if value, ok := labels[key]; ok {
			own[key] = value
		}
	}
	return own
}

// isOurs says whether labels are those of a workspace of any provider.
func isOurs(labels map[string]string) bool {
	return labels[workspace.LabelManaged] == "true" && labels[workspace.LabelProvider] != "" &&
		labels[labelToken] != "" && labels[labelHelper] == ""
}

// keyOf is the workspace's id by its labels.
func keyOf(labels map[string]string) string { return cmp.Or(labels[labelName], labels[labelToken]) }

// owned checks that the container is this provider's workspace of that id. The
// error wraps [workspace.ErrInvalid] and says whose it is (contract L4, L6).
func (p *provider) owned(c container.InspectResponse, id string) error {
	labels := c.Config.Labels
	name := strings.TrimPrefix(c.Name, "/")
	switch {
	case !isOurs(labels):
		return fmt.Errorf("container %s was not made by Berth, and is not the configured container_name: %w", name, workspace.ErrInvalid)
	case labels[workspace.LabelProvider] != p.name:
		return fmt.Errorf("container %s was made by provider %s: %w", name, labels[workspace.LabelProvider], workspace.ErrInvalid)
	case keyOf(labels) != id:
		return fmt.Errorf("container %s is the workspace %s: %w", name, keyOf(labels), workspace.ErrInvalid)
	}
	return nil
}

// containerName is the name of a workspace's container. The engine wants two
// characters or more; no workspace's name has an underscore.
func containerName(id string) string {
	if len(id) == 1 {
		return id + "_"
	}
	return id
}

// guestForeign is a container that somebody else made: how far the guest can be
// placed is found out when it is opened.
const guestForeign = ""
