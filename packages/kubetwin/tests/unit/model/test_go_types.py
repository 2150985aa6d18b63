"""Objects in messages, as the server's internal Go types print them."""

from __future__ import annotations

import json

from kubetwin.model.go_types import go_difference, go_text, go_value


def test_a_message_shows_the_empty_fields_of_the_internal_type_too() -> None:
    policy = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]}
    assert go_text(policy, "PodFailurePolicy") == (
        '{"Rules":[{"Action":"FailJob","OnExitCodes":{"ContainerName":null,"Operator":"In","Values":[1]},'
        '"OnPodConditions":null}]}'
    )
    assert go_text(None, "PodFailurePolicy") == "null"


def test_fields_of_the_host_are_in_the_security_context_of_the_internal_type() -> None:
    shown = go_value({"hostNetwork": True, "securityContext": {"runAsUser": 7}}, "PodSpec")
    assert (shown["SecurityContext"]["HostNetwork"], shown["SecurityContext"]["RunAsUser"]) == (True, 7)
    assert "HostNetwork" not in shown


def test_every_field_of_a_pod_is_shown_under_its_go_name() -> None:
    probe = {"httpGet": {"path": "/", "port": "web", "httpHeaders": [{"name": "A", "value": "1"}]}, "periodSeconds": 3}
    source = {"name": "v", "nfs": {"server": "s", "path": "/"}}
    container = {"name": "c", "tty": True, "livenessProbe": probe, "securityContext": {"seLinuxOptions": {"user": "u"}}}
    spec = {"dnsPolicy": "None", "os": {"name": "linux"}, "containers": [container], "volumes": [source]}
    shown = go_value(spec, "PodSpec")
    [made], [volume] = shown["Containers"], shown["Volumes"]
    assert (shown["DNSPolicy"], shown["OS"], volume["NFS"]["Server"]) == ("None", {"Name": "linux"}, "s")
    assert made["TTY"]
    assert made["LivenessProbe"]["HTTPGet"]["HTTPHeaders"] == [{"Name": "A", "Value": "1"}]
    assert made["SecurityContext"]["SELinuxOptions"] == {"User": "u", "Role": "", "Type": "", "Level": ""}


def test_maps_are_shown_in_the_order_of_their_keys_and_selectors_in_that_of_their_fields() -> None:
    selector = {
        "matchExpressions": [{"values": ["b"], "operator": "In", "key": "a"}],
        "matchLabels": {"z": "1", "b": "2"},
    }
    assert go_text(selector, "-") == json.dumps(
        {
            "matchLabels": {"b": "2", "z": "1"},
            "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
        },
        separators=(",", ":"),
    )


def test_letters_of_html_are_escaped_as_go_does() -> None:
    assert go_text({"a": "<&>"}, "-") == '{"a":"\\u003c\\u0026\\u003e"}'


def test_a_change_is_shown_as_a_unified_diff_without_file_names() -> None:
    old, new = ({"accessModes": [mode]} for mode in ("ReadWriteOnce", "ReadWriteMany"))
    assert go_difference(old, new, "PersistentVolumeClaimSpec") == (
        '@@ -1,6 +1,6 @@\n {\n  "AccessModes": [\n-  "ReadWriteOnce"\n+  "ReadWriteMany"\n  ],\n'
        '  "Selector": null,\n  "Resources": {\n'
    )
