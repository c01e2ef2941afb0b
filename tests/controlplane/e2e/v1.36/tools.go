//go:build tools

package main

import (
	_ "k8s.io/kubernetes/test/images/agnhost"
)
