{{/* Fast up, slow down: a pod takes minutes to come, and one that goes ends its utterances first. */}}
{{- define "cosyvoice.pace" -}}
scaleUp:
  stabilizationWindowSeconds: 0
  selectPolicy: Max
  policies:
    - {type: Percent, value: 100, periodSeconds: 60}
    - {type: Pods, value: 4, periodSeconds: 60}
scaleDown:
  stabilizationWindowSeconds: 600
  policies:
    - {type: Pods, value: 1, periodSeconds: 300}
{{- end -}}

{{/* Labels of this release's servers among all series of a Prometheus. */}}
{{- define "cosyvoice.series" -}}
namespace="{{ .Release.Namespace }}", pod=~"{{ include "cosyvoice.fullname" . }}-server-.+"
{{- end -}}
